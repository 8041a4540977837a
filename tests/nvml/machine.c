/* How the simulated machine behaves over time: curves, power sensors, the energy counter, memory. */
#define _GNU_SOURCE
#include "machine.h"

#include <time.h>
#include <unistd.h>

#define COUNTER_AT_START_MJ 1000000000ull /* the driver was loaded before the test began */
#define UTILIZATION_WINDOW (1.0 / 6)      /* NVML averages over 1/6 s to 1 s, depending on the board */

/* ---- Time ---- */

static _Atomic long long held_ns = -1; /* since the epoch of the scenario; below 0 the clock runs by itself */

void clock_hold(double seconds) { atomic_store(&held_ns, llround(seconds * 1e9)); }

bool clock_held(void) { return atomic_load(&held_ns) >= 0; }

void clock_advance(long long ns) { atomic_fetch_add(&held_ns, ns); }

double machine_now(const Machine *machine)
{
    long long ns = atomic_load(&held_ns);
    if (ns >= 0)
        return (double)ns * 1e-9;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9 - machine->epoch;
}

/* ---- Curves ---- */

static double piece_end(const Curve *curve, int i)
{
    return i + 1 < curve->pieces ? curve->piece[i + 1].start : curve->period;
}

static double slope(const Curve *curve, int i)
{
    const Piece *piece = &curve->piece[i];
    if (piece->first == piece->last)
        return 0;
    return (piece->last - piece->first) / (piece_end(curve, i) - piece->start);
}

static int piece_at(const Curve *curve, double x)
{
    int i = curve->pieces - 1;
    while (i > 0 && x < curve->piece[i].start)
        i--;
    return i;
}

/* The integral from the start of the curve to x within its first period. */
static double integral_within(const Curve *curve, double x)
{
    int i = piece_at(curve, x);
    const Piece *piece = &curve->piece[i];
    double width = x - piece->start;
    return piece->integral_before + width * (piece->first + slope(curve, i) * width / 2);
}

static double integral_to(const Curve *curve, double x)
{
    if (isinf(curve->period))
        return integral_within(curve, x);
    double periods = floor(x / curve->period);
    double rest = x - periods * curve->period;
    return periods * integral_within(curve, curve->period) + integral_within(curve, rest);
}

void curve_pieces(Curve *curve, int count, const double *starts, const double *values, double period,
                  double phase)
{
    *curve = (Curve){.varies = true, .pieces = count, .period = period, .phase = phase};
    for (int i = 0; i < count; i++)
        curve->piece[i] = (Piece){starts[i], values[2 * i], values[2 * i + 1], 0};
    for (int i = 1; i < count; i++)
        curve->piece[i].integral_before = curve->piece[i - 1].integral_before
            + (starts[i] - starts[i - 1]) * (values[2 * i - 2] + values[2 * i - 1]) / 2;
}

void curve_constant(Curve *curve, double value)
{
    curve_pieces(curve, 1, (double[]){0}, (double[]){value, value}, INFINITY, 0);
    curve->varies = false;
}

double curve_value(const Curve *curve, double t)
{
    if (!curve->varies)
        return curve->piece[0].first;
    double x = t + curve->phase;
    if (!isinf(curve->period))
        x -= floor(x / curve->period) * curve->period;
    int i = piece_at(curve, x);
    return curve->piece[i].first + slope(curve, i) * (x - curve->piece[i].start);
}

double curve_integral(const Curve *curve, double from, double to)
{
    if (!curve->varies)
        return curve->piece[0].first * (to - from);
    return integral_to(curve, to + curve->phase) - integral_to(curve, from + curve->phase);
}

double curve_mean(const Curve *curve, double from, double to)
{
    return curve->varies ? curve_integral(curve, from, to) / (to - from) : curve->piece[0].first;
}

/* ---- What a GPU reports ---- */

/* A driver that lost a GPU finds it again only when it is initialized after the GPU came back. */
bool gpu_is_lost(const Machine *machine, const Gpu *gpu, double t)
{
    if (*gpu->lost_while && access(gpu->lost_while, F_OK) == 0)
        return true;
    for (int i = 0; i < gpu->lost_count; i++) {
        Window lost = gpu->lost[i];
        bool unseen_return = machine->lost_needs_reinit && t >= lost.to && machine->initialized < lost.to;
        if (within(lost, t) || unseen_return)
            return true;
    }
    return false;
}

static double last_update(double t, double every)
{
    return every > 0 ? floor(t / every) * every : t;
}

double gpu_power(const Gpu *gpu, Sensor sensor, double t)
{
    const Curve *power = &gpu->signal[SIGNAL_power];
    double end = last_update(t, sensor.update);
    double watts = sensor.window > 0 ? curve_mean(power, end - sensor.window, end) : curve_value(power, end);
    return watts * gpu->sensor_gain;
}

u64 gpu_energy_counter(const Gpu *gpu, double t)
{
    if (gpu->counter == COUNTER_FROZEN)
        return COUNTER_AT_START_MJ;
    double end = last_update(t, gpu->counter_update);
    bool reset = end >= gpu->counter_reset;
    double joules = curve_integral(&gpu->signal[SIGNAL_power], reset ? gpu->counter_reset : 0, end);
    return (reset ? 0 : COUNTER_AT_START_MJ) + (u64)(joules * 1e3);
}

double gpu_percent(const Gpu *gpu, Signal signal, double t)
{
    return curve_mean(&gpu->signal[signal], t - UTILIZATION_WINDOW, t);
}

/* ---- Memory ---- */

static u64 processes_memory(const Gpu *gpu, const MigDevice *mig, double t)
{
    u64 bytes = 0;
    for (int i = 0; i < gpu->process_count; i++) {
        const Process *process = &gpu->process[i];
        bool here = !mig || (process->mig >= 0 && gpu->mig[process->mig].gpu_instance == mig->gpu_instance);
        if (here && process->bytes != NVML_VALUE_NOT_AVAILABLE && within(process->when, t))
            bytes += process->bytes;
    }
    return bytes;
}

u64 gpu_memory_used(const Gpu *gpu, double t)
{
    if (!gpu->memory_given && gpu->memory_by_process)
        return processes_memory(gpu, NULL, t);
    return (u64)(curve_value(&gpu->signal[SIGNAL_memory], t) * MIB);
}

/* Memory comes in eighths of the board: three and four compute slices own four of them, seven own all. */
static unsigned memory_eighths(unsigned gpu_slices)
{
    return gpu_slices >= 5 ? 8 : gpu_slices >= 3 ? 4 : gpu_slices;
}

u64 mig_memory_total(const Gpu *gpu, const MigDevice *mig)
{
    return gpu->model->memory_mib * memory_eighths(mig->gpu_slices) / 8 * MIB;
}

unsigned mig_nominal_gb(const Gpu *gpu, const MigDevice *mig)
{
    return gpu->model->nominal_gb * memory_eighths(mig->gpu_slices) / 8;
}

/* Memory belongs to the GPU instance: its compute instances all report the same. */
u64 mig_memory_used(const Gpu *gpu, const MigDevice *mig, double t)
{
    return processes_memory(gpu, mig, t);
}
