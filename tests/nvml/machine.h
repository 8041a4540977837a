/* The simulated machine: what the scenario describes and what the NVML functions answer from. */
#ifndef MACHINE_H
#define MACHINE_H

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "functions.h"
#include "nvml.h"

enum { MAX_GPUS = 64, MAX_MIG = 7, MAX_PROCESSES = 64, MAX_RULES = 512, MAX_XIDS = 64 };
enum { MAX_PIECES = 32, MAX_WINDOWS = 16 };

#define MIB (1024ull * 1024)
#define ANY_GPU (-1)

/* Seconds since the epoch of the scenario; `to` is INFINITY where nothing ends. */
typedef struct { double from, to; } Window;

static inline bool within(Window window, double t) { return t >= window.from && t < window.to; }

/* ---- Signals: values that change over time ---- */

/* A piecewise linear curve whose integral is exact, so that energy can be checked to the millijoule. */
typedef struct {
    double start, first, last, integral_before;
} Piece;

typedef struct {
    bool varies; /* a constant needs no clock */
    int pieces;
    double period; /* INFINITY where the curve does not repeat and its last value holds */
    double phase;
    Piece piece[MAX_PIECES];
} Curve;

void curve_constant(Curve *curve, double value);
/* Piece i is a straight line from values[2i] to values[2i+1] that begins at starts[i]. */
void curve_pieces(Curve *curve, int count, const double *starts, const double *values, double period,
                  double phase);
double curve_value(const Curve *curve, double t);
double curve_integral(const Curve *curve, double from, double to);
double curve_mean(const Curve *curve, double from, double to);

/* Name in a scenario, and the value that `training` takes for full scale (0: `training` makes no sense). */
#define SIGNALS(X) \
    X(power, -1)   /* W; full scale is the power limit */ \
    X(util, 100)   /* % of time with a kernel running */ \
    X(memory_util, 100) \
    X(tensor, 100) /* % of time with the tensor cores busy, read through GPM */ \
    X(encoder, 100) \
    X(decoder, 100) \
    X(temperature, 0)        /* C */ \
    X(memory_temperature, 0) /* C */ \
    X(memory, 0)             /* MiB used */ \
    X(sm_clock, 0)           /* MHz */ \
    X(mem_clock, 0)          /* MHz */ \
    X(fan, 0)                /* % */ \
    X(pcie_tx, 0)            /* MB/s */ \
    X(pcie_rx, 0)            /* MB/s */ \
    X(nvlink_tx, 0)          /* MiB/s, all links together */ \
    X(nvlink_rx, 0)          /* MiB/s, all links together */

typedef enum {
#define X(name, full_scale) SIGNAL_##name,
    SIGNALS(X)
#undef X
    SIGNAL_COUNT
} Signal;

/* ---- Boards ---- */

/* The mean power of the last `window` seconds, renewed every `update` seconds. No window: the truth. */
typedef struct { double window, update; } Sensor;

typedef struct {
    const char *key, *name;
    unsigned brand, architecture, cuda_major, cuda_minor, pci_device_id;
    unsigned multiprocessors, cores, memory_bus_bits;
    unsigned memory_mib, reserved_mib; /* 0: memory is the host's and NVML does not report it */
    unsigned nominal_gb;
    unsigned limit_w, min_limit_w, max_limit_w; /* 0: no power limit is reported */
    unsigned sm_mhz, mem_mhz, video_mhz;
    unsigned shutdown_c, slowdown_c, gpu_max_c, mem_max_c; /* mem_max_c 0: no memory temperature */
    unsigned fans, nvlinks, pcie_generation, pcie_width;
    bool datacenter; /* ECC, a serial number, always P0 */
    bool energy_counter, power_instant_field, power_average_field, usage_is_average, gpm, mig;
    Sensor instant, average;
} Model;

const Model *model_by_key(const char *key);

typedef struct {
    unsigned gpu_instance, compute_instance, gpu_slices, compute_slices;
    char uuid[48];
} MigDevice;

typedef enum { PROCESS_COMPUTE, PROCESS_GRAPHICS, PROCESS_MPS } ProcessKind;

typedef struct {
    unsigned pid;
    int mig; /* index of its MIG device, or -1 */
    u64 bytes;
    ProcessKind kind;
    unsigned sm_percent; /* 0: idle, so without utilization samples */
    Window when;
} Process;

typedef enum { COUNTER_RUNS, COUNTER_FROZEN, COUNTER_NONE } CounterState;
typedef enum { SAMPLES_GOOD, SAMPLES_STALE, SAMPLES_OVER_100 } SampleQuality;

typedef struct {
    unsigned index;
    const Model *model;
    char uuid[48], serial[16];
    Curve signal[SIGNAL_COUNT];
    bool memory_given, memory_by_process; /* what the scenario has: a curve, or processes that use memory */

    Sensor instant, average;
    double sensor_gain;
    CounterState counter;
    double counter_reset, counter_update; /* seconds */

    bool gpm, mig_enabled;
    int mig_count;
    MigDevice mig[MAX_MIG];

    int process_count;
    Process process[MAX_PROCESSES];
    SampleQuality samples;
    _Atomic int races; /* reads of the process list that will still find it grown */

    int lost_count, reason_count, ecc_count;
    Window lost[MAX_WINDOWS];
    char lost_while[256]; /* a file: lost for as long as it is there, beside the windows; or empty */
    struct { u64 bits; Window when; } reason[MAX_WINDOWS];
    struct { unsigned type; u64 errors; Window when; } ecc[MAX_WINDOWS];
    unsigned remapped[4]; /* correctable, uncorrectable, pending, failure */
} Gpu;

/* ---- Trouble ---- */

/* What a scenario does to one function (or one field of nvmlDeviceGetFieldValues) of one GPU or of all. */
typedef struct {
    int gpu;
    int function; /* FUNCTION_COUNT: none, this rule is about a field */
    unsigned field;
    long long delay_ns;
    nvmlReturn_t result;
    Window when;
} Rule;

typedef struct { unsigned gpu, xid; double at; } Xid;

typedef struct {
    double epoch;       /* CLOCK_MONOTONIC, in seconds */
    double initialized; /* seconds after the epoch */
    double wall_us;     /* CLOCK_REALTIME at the epoch, in microseconds */
    long long latency_ns, pcie_latency_ns;
    nvmlReturn_t lost_error;
    bool lost_needs_reinit;
    unsigned host;
    int rule_count, xid_count;
    bool ruled[FUNCTION_COUNT]; /* functions with a rule, so that the others need not look */
    bool fields_ruled;
    Rule rule[MAX_RULES];
    Xid xid[MAX_XIDS];
    unsigned gpu_count;
    Gpu gpu[];
} Machine;

/* Reads the scenario, or aborts with the line at fault: a test must not silently test nothing. */
Machine *machine_from_scenario(const char *path);

double machine_now(const Machine *machine);
void clock_hold(double seconds); /* from now on it is this second of the scenario, until somebody moves it */
bool clock_held(void);
void clock_advance(long long ns); /* only while it is held */
bool gpu_is_lost(const Machine *machine, const Gpu *gpu, double t);
double gpu_power(const Gpu *gpu, Sensor sensor, double t);  /* W */
u64 gpu_energy_counter(const Gpu *gpu, double t);           /* mJ */
double gpu_percent(const Gpu *gpu, Signal signal, double t);
u64 gpu_memory_used(const Gpu *gpu, double t);
u64 mig_memory_total(const Gpu *gpu, const MigDevice *mig);
unsigned mig_nominal_gb(const Gpu *gpu, const MigDevice *mig); /* as in the names of MIG profiles */
u64 mig_memory_used(const Gpu *gpu, const MigDevice *mig, double t);

#endif
