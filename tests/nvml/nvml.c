/* The library itself: its life cycle, and the way every call takes. */
#define _GNU_SOURCE
#include "entry.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_BETWEEN_CLOCKS 1e-4 /* seconds between two readings that are to be of one moment */
#define LONGEST_SPIN_NS 200000 /* the kernel's timer slack makes shorter sleeps much too long */

/* Handles stay the same over shutdown and initialization, as those of NVML do. */
struct nvmlDevice_st {
    unsigned char gpu;
    signed char mig;
};
enum { HANDLES_PER_GPU = 1 + MAX_MIG };
static struct nvmlDevice_st handles[MAX_GPUS * HANDLES_PER_GPU];

/* A call may sleep in a machine while another thread shuts down, so that old machines are never freed. */
static _Atomic(Machine *) current;
static pthread_mutex_t life_cycle = PTHREAD_MUTEX_INITIALIZER;
static unsigned initializations;
static double first_initialized = -1;

static _Atomic u64 calls[FUNCTION_COUNT];

/* ---- Time ---- */

static double clock_seconds(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void pause_ns(long long ns)
{
    if (clock_held()) {
        clock_advance(ns);
        return;
    }
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    long long nanoseconds = end.tv_nsec + ns;
    end.tv_sec += nanoseconds / 1000000000;
    end.tv_nsec = nanoseconds % 1000000000;
    if (ns > LONGEST_SPIN_NS) {
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) {
        }
        return;
    }
    struct timespec time;
    do
        clock_gettime(CLOCK_MONOTONIC, &time);
    while (time.tv_sec < end.tv_sec || (time.tv_sec == end.tv_sec && time.tv_nsec < end.tv_nsec));
}

/* ---- Entering a call ---- */

static nvmlReturn_t apply_rules(const Machine *machine, int gpu, int function, unsigned field)
{
    double t = machine_now(machine);
    nvmlReturn_t result = NVML_SUCCESS;
    for (int i = 0; i < machine->rule_count; i++) {
        const Rule *rule = &machine->rule[i];
        bool meant = rule->function == function && (function != FUNCTION_COUNT || rule->field == field);
        if (!meant || (rule->gpu != ANY_GPU && rule->gpu != gpu) || !within(rule->when, t))
            continue;
        if (rule->delay_ns)
            pause_ns(rule->delay_ns);
        if (rule->result != NVML_SUCCESS)
            result = rule->result;
    }
    return result;
}

nvmlReturn_t function_rule(const Machine *machine, Function function, int gpu)
{
    return machine->ruled[function] ? apply_rules(machine, gpu, function, 0) : NVML_SUCCESS;
}

nvmlReturn_t field_rule(const Subject *subject, unsigned field)
{
    if (!subject->machine->fields_ruled)
        return NVML_SUCCESS;
    return apply_rules(subject->machine, (int)subject->gpu->index, FUNCTION_COUNT, field);
}

nvmlReturn_t enter_system(Function function, const Machine **machine)
{
    atomic_fetch_add_explicit(&calls[function], 1, memory_order_relaxed);
    *machine = atomic_load_explicit(&current, memory_order_acquire);
    return *machine ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t enter_device(Function function, nvmlDevice_t device, Subject *subject)
{
    atomic_fetch_add_explicit(&calls[function], 1, memory_order_relaxed);
    const Machine *machine = atomic_load_explicit(&current, memory_order_acquire);
    REQUIRE(machine, NVML_ERROR_UNINITIALIZED);

    REQUIRE(device >= handles && device < handles + MAX_GPUS * HANDLES_PER_GPU, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(device->gpu < machine->gpu_count, NVML_ERROR_INVALID_ARGUMENT);
    const Gpu *gpu = &machine->gpu[device->gpu];
    REQUIRE(device->mig < gpu->mig_count, NVML_ERROR_INVALID_ARGUMENT);
    *subject = (Subject){machine, gpu, device->mig < 0 ? NULL : &gpu->mig[device->mig]};

    if (machine->latency_ns)
        pause_ns(machine->latency_ns);
    nvmlReturn_t result = function_rule(machine, function, (int)gpu->index);
    if (gpu->lost_count && gpu_is_lost(machine, gpu, machine_now(machine)))
        return machine->lost_error;
    return result;
}

nvmlDevice_t handle_of(unsigned gpu, int mig) { return &handles[(int)gpu * HANDLES_PER_GPU + 1 + mig]; }

/* ---- Life cycle ---- */

/* NVML does not survive a fork. Ours says so at once, where the driver's would answer nonsense or hang. */
static void forget_after_fork(void)
{
    atomic_store(&current, NULL);
    initializations = 0;
    pthread_mutex_init(&life_cycle, NULL);
}

__attribute__((constructor)) static void load(void)
{
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        for (int mig = -1; mig < MAX_MIG; mig++)
            *handle_of((unsigned)gpu, mig) = (struct nvmlDevice_st){(unsigned char)gpu, (signed char)mig};
    pthread_atfork(NULL, NULL, forget_after_fork);
}

static nvmlReturn_t start(Function function)
{
    double monotonic, wall;
    do { /* again, where we were interrupted in between */
        monotonic = clock_seconds(CLOCK_MONOTONIC);
        wall = clock_seconds(CLOCK_REALTIME);
    } while (clock_seconds(CLOCK_MONOTONIC) - monotonic > MOST_BETWEEN_CLOCKS);
    if (first_initialized < 0)
        first_initialized = monotonic;
    Machine *machine = machine_from_scenario(getenv("PULSETRAIN_TEST_NVML"));
    const char *shared_epoch = getenv("PULSETRAIN_TEST_NVML_EPOCH");
    machine->epoch = shared_epoch ? strtod(shared_epoch, NULL) : first_initialized;
    machine->wall_us = (wall - monotonic + machine->epoch) * 1e6;
    nvmlReturn_t result = function_rule(machine, function, ANY_GPU);
    machine->initialized = machine_now(machine);
    if (result == NVML_SUCCESS)
        atomic_store_explicit(&current, machine, memory_order_release);
    else
        free(machine);
    return result;
}

static nvmlReturn_t initialize(Function function)
{
    atomic_fetch_add_explicit(&calls[function], 1, memory_order_relaxed);
    pthread_mutex_lock(&life_cycle);
    nvmlReturn_t result = initializations ? NVML_SUCCESS : start(function);
    if (result == NVML_SUCCESS)
        initializations++;
    pthread_mutex_unlock(&life_cycle);
    return result;
}

API nvmlReturn_t nvmlInit_v2(void) { return initialize(FUNCTION_nvmlInit_v2); }

API nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return initialize(FUNCTION_nvmlInitWithFlags);
}

API nvmlReturn_t nvmlShutdown(void)
{
    ENTER_SYSTEM(nvmlShutdown);
    pthread_mutex_lock(&life_cycle);
    if (initializations && --initializations == 0)
        atomic_store(&current, NULL);
    pthread_mutex_unlock(&life_cycle);
    return NVML_SUCCESS;
}

API const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power",
        "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found",
        "Function Not Found", "Corrupted infoROM", "GPU is lost", "GPU requires reset",
        "GPU access blocked by the operating system", "Driver/library version mismatch",
        "In use by another client", "Insufficient Memory", "No data",
    };
    return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "Unknown Error";
}

/* ---- The system ---- */

nvmlReturn_t copy_text(char *to, unsigned size, const char *text)
{
    REQUIRE(to, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(strlen(text) < size, NVML_ERROR_INSUFFICIENT_SIZE);
    strcpy(to, text);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    ENTER_SYSTEM(nvmlSystemGetDriverVersion);
    return copy_text(version, size, "580.95.05");
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    ENTER_SYSTEM(nvmlSystemGetNVMLVersion);
    return copy_text(version, size, "13.580.95.05");
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    ENTER_SYSTEM(nvmlSystemGetCudaDriverVersion);
    REQUIRE(version, NVML_ERROR_INVALID_ARGUMENT);
    *version = 13000;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER_SYSTEM(nvmlSystemGetCudaDriverVersion_v2);
    REQUIRE(version, NVML_ERROR_INVALID_ARGUMENT);
    *version = 13000;
    return NVML_SUCCESS;
}

/* ---- For tests and benchmarks ---- */

/* How often this process called one function, or with NULL all of them. */
API u64 pulsetrain_test_calls(const char *function)
{
    u64 sum = 0;
    bool found = !function;
    for (int i = 0; i < FUNCTION_COUNT; i++)
        if (!function || strcmp(function_names[i], function) == 0) {
            sum += atomic_load_explicit(&calls[i], memory_order_relaxed);
            found = true;
        }
    if (!found) {
        fprintf(stderr, "simulated NVML: no function '%s' to count\n", function);
        abort();
    }
    return sum;
}

/* Joules that a GPU really used between two readings of CLOCK_MONOTONIC; NAN where there is no such GPU. */
API double pulsetrain_test_energy(unsigned gpu, double from, double to)
{
    const Machine *machine = atomic_load_explicit(&current, memory_order_acquire);
    if (!machine || gpu >= machine->gpu_count)
        return NAN;
    return curve_integral(&machine->gpu[gpu].signal[SIGNAL_power], from - machine->epoch, to - machine->epoch);
}

/* Holds the clock at this second of the scenario. Pauses then take no time, and move it on. */
API void pulsetrain_test_hold(double second) { clock_hold(second); }

/* The second of the scenario at which the clock is held; NAN where it is not. */
API double pulsetrain_test_held(void) { return clock_held() ? machine_now(NULL) : NAN; }
