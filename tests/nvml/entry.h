/* What every NVML function does first: count the call, find the GPU, bear what the scenario has in store. */
#ifndef ENTRY_H
#define ENTRY_H

#include "machine.h"

#define API __attribute__((visibility("default")))

/* What one call is about. `mig` is set when the handle names a MIG device of that GPU. */
typedef struct {
    const Machine *machine;
    const Gpu *gpu;
    const MigDevice *mig;
} Subject;

nvmlReturn_t enter_system(Function function, const Machine **machine);
nvmlReturn_t enter_device(Function function, nvmlDevice_t device, Subject *subject);
nvmlReturn_t function_rule(const Machine *machine, Function function, int gpu);
nvmlReturn_t field_rule(const Subject *subject, unsigned field);
nvmlDevice_t handle_of(unsigned gpu, int mig); /* mig -1: the GPU itself */
void pause_ns(long long ns);
nvmlReturn_t copy_text(char *to, unsigned size, const char *text);

#define TRY(expression) \
    do { \
        nvmlReturn_t result_ = (expression); \
        if (result_ != NVML_SUCCESS) \
            return result_; \
    } while (0)

#define REQUIRE(condition, otherwise) \
    do { \
        if (!(condition)) \
            return (otherwise); \
    } while (0)

/* Declares `machine`. A lookup applies the rules itself, once it knows the GPU. */
#define ENTER_LOOKUP(function) \
    const Machine *machine; \
    TRY(enter_system(FUNCTION_##function, &machine))

#define ENTER_SYSTEM(function) \
    ENTER_LOOKUP(function); \
    TRY(function_rule(machine, FUNCTION_##function, ANY_GPU))

/* Declares `subject` and `gpu`. For the few functions that also answer for a MIG device. */
#define ENTER_ANY(function, device) \
    Subject subject; \
    TRY(enter_device(FUNCTION_##function, device, &subject)); \
    const Gpu *gpu = subject.gpu; \
    (void)gpu

/* The same for all others. */
#define ENTER(function, device) \
    ENTER_ANY(function, device); \
    REQUIRE(!subject.mig, NVML_ERROR_NOT_SUPPORTED)

/* Most getters: one value, perhaps not on every board. */
#define GETTER(function, type, supported, value) \
    API nvmlReturn_t function(nvmlDevice_t device, type *out) \
    { \
        ENTER(function, device); \
        REQUIRE(out, NVML_ERROR_INVALID_ARGUMENT); \
        REQUIRE(supported, NVML_ERROR_NOT_SUPPORTED); \
        *out = (type)(value); \
        return NVML_SUCCESS; \
    }

#define NOW machine_now(subject.machine)

/* The time, where this signal needs one. */
#define NOW_FOR(name) (gpu->signal[SIGNAL_##name].varies ? NOW : 0)

#endif
