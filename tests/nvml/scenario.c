/* Reads a scenario into a machine. README.md has the lines a scenario may hold. */
#define _GNU_SOURCE
#include "machine.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum { MAX_WORDS = 2 + 2 * MAX_PIECES, MAX_LINE = 1024 };
#define LIMITLESS_BOARD_W 140.0 /* stands in for the power limit that such a board does not report */

typedef struct {
    const char *path;
    int number;
    int count;
    char *word[MAX_WORDS];
} Line;

const char *const function_names[FUNCTION_COUNT] = {
#define X(name) #name,
    FUNCTIONS(X)
#undef X
};

static const struct { const char *name; double full_scale; } signals[SIGNAL_COUNT] = {
#define X(name, full_scale) {#name, full_scale},
    SIGNALS(X)
#undef X
};

__attribute__((noreturn, format(printf, 2, 3))) static void reject(const Line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "simulated NVML: %s:%d: ", line->path, line->number);
    vfprintf(stderr, format, arguments);
    for (int i = 0; i < line->count; i++)
        fprintf(stderr, "%s%s", i ? " " : "\n    ", line->word[i]);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

/* ---- Words ---- */

static const char *word(const Line *line, int i)
{
    if (i >= line->count)
        reject(line, "the line is too short");
    return line->word[i];
}

static double number(const Line *line, int i)
{
    const char *text = word(line, i);
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end)
        reject(line, "'%s' is not a number", text);
    return value;
}

static double number_or(const Line *line, int i, double otherwise)
{
    return i < line->count ? number(line, i) : otherwise;
}

static unsigned natural(const Line *line, int i)
{
    const char *text = word(line, i);
    char *end;
    unsigned long value = strtoul(text, &end, 0);
    if (!isdigit((unsigned char)*text) || *end || value > UINT_MAX)
        reject(line, "'%s' is not a whole number", text);
    return (unsigned)value;
}

static Window window(const Line *line, int i)
{
    return (Window){number_or(line, i, 0), number_or(line, i + 1, INFINITY)};
}

static void expect_end(const Line *line, int count)
{
    if (line->count > count)
        reject(line, "nothing should follow '%s'", line->word[count - 1]);
}

static int room(const Line *line, int used, int most)
{
    if (used >= most)
        reject(line, "more than %d of these", most);
    return used;
}

/* Names a GPU (`3`), all of them (`*`), or for processes one MIG device (`3.1`). */
static int gpu_number(const Machine *machine, const Line *line, int i)
{
    if (strcmp(word(line, i), "*") == 0)
        return ANY_GPU;
    char *end;
    unsigned long gpu = strtoul(line->word[i], &end, 10);
    if (end == line->word[i] || (*end && *end != '.') || gpu >= machine->gpu_count)
        reject(line, "no GPU '%s'", line->word[i]);
    return (int)gpu;
}

/* ---- Curves ---- */

static double full_scale(const Gpu *gpu, Signal signal, const Line *line)
{
    if (signal == SIGNAL_power)
        return gpu->model->limit_w ? gpu->model->limit_w : LIMITLESS_BOARD_W;
    if (signals[signal].full_scale <= 0)
        reject(line, "'training' says nothing about %s", signals[signal].name);
    return signals[signal].full_scale;
}

/* Half a second of a training step: compute, exchange of gradients, wait for data. */
static void curve_training(Curve *curve, double full, double phase)
{
    double values[] = {0.90 * full, 0.90 * full, 0.60 * full, 0.60 * full, 0.35 * full, 0.35 * full};
    curve_pieces(curve, 3, (double[]){0, 0.35, 0.45}, values, 0.5, phase);
}

static void curve_pulse(Curve *curve, const Line *line, int at)
{
    double a = number(line, at), b = number(line, at + 1), period = number(line, at + 2);
    double width = number(line, at + 3);
    expect_end(line, at + 5);
    if (width <= 0 || width >= period)
        reject(line, "a pulse is longer than 0 seconds and shorter than its period");
    curve_pieces(curve, 2, (double[]){0, width}, (double[]){b, b, a, a}, period, number_or(line, at + 4, 0));
}

static void curve_steps(Curve *curve, const Line *line, int at)
{
    double starts[MAX_PIECES], values[2 * MAX_PIECES];
    int count = 0;
    for (int i = at; i < line->count; i += 2, count++) {
        starts[room(line, count, MAX_PIECES)] = number(line, i);
        values[2 * count] = values[2 * count + 1] = number(line, i + 1);
        if (count ? starts[count] <= starts[count - 1] : starts[0] != 0)
            reject(line, "steps begin at second 0 and go forward in time");
    }
    if (count == 0)
        reject(line, "the line is too short");
    curve_pieces(curve, count, starts, values, INFINITY, 0);
}

static void read_curve(Gpu *gpu, Signal signal, const Line *line, int at)
{
    Curve *curve = &gpu->signal[signal];
    const char *shape = word(line, at);
    if (strcmp(shape, "constant") == 0) {
        expect_end(line, at + 2);
        curve_constant(curve, number(line, at + 1));
    } else if (strcmp(shape, "square") == 0 || strcmp(shape, "ramp") == 0) {
        bool ramp = shape[0] == 'r';
        double a = number(line, at + 1), b = number(line, at + 2), period = number(line, at + 3);
        if (period <= 0)
            reject(line, "a period is longer than 0 seconds");
        double square_values[] = {a, a, b, b}, ramp_values[] = {a, b};
        expect_end(line, at + 5);
        double *values = ramp ? ramp_values : square_values, phase = number_or(line, at + 4, 0);
        curve_pieces(curve, ramp ? 1 : 2, (double[]){0, period / 2}, values, period, phase);
    } else if (strcmp(shape, "steps") == 0) {
        curve_steps(curve, line, at + 1);
    } else if (strcmp(shape, "pulse") == 0) {
        curve_pulse(curve, line, at + 1);
    } else if (strcmp(shape, "training") == 0) {
        expect_end(line, at + 2);
        curve_training(curve, full_scale(gpu, signal, line), number_or(line, at + 1, 0));
    } else {
        reject(line, "no curve '%s'", shape);
    }
    gpu->memory_given |= signal == SIGNAL_memory;
}

/* ---- Lines about the whole machine ---- */

static void add_rule(Machine *machine, const Line *line, Rule rule)
{
    machine->rule[room(line, machine->rule_count++, MAX_RULES)] = rule;
    if (rule.function == FUNCTION_COUNT)
        machine->fields_ruled = true;
    else
        machine->ruled[rule.function] = true;
}

/* Functions about the system have no GPU, and a rule for one GPU would never touch them. */
static bool takes_a_gpu(const char *name)
{
    static const char *const system[] = {
        "nvmlInit", "nvmlShutdown", "nvmlSystem", "nvmlDeviceGetCount", "nvmlEventSet",
        "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmMetricsGet",
    };
    for (size_t i = 0; i < sizeof system / sizeof *system; i++)
        if (strncmp(name, system[i], strlen(system[i])) == 0)
            return false;
    return true;
}

/* A whole name, or a part of one that may fit several: `fan` is every function about fans. */
static void add_rules(Machine *machine, const Line *line, const char *name, Rule rule)
{
    bool whole = strncmp(name, "nvml", 4) == 0, found = false;
    for (int i = 0; i < FUNCTION_COUNT; i++) {
        const char *candidate = function_names[i];
        bool named = whole ? strcmp(candidate, name) == 0 : strcasestr(candidate, name) != NULL;
        if (!named || (rule.gpu != ANY_GPU && !takes_a_gpu(candidate)))
            continue;
        rule.function = i;
        add_rule(machine, line, rule);
        found = true;
    }
    if (!found)
        reject(line, "no function '%s' that this could apply to", name);
}

/* `GPU FUNCTION ...` or `GPU field ID ...`; returns where the words about the rule itself begin. */
static int rule_subject_end(const Line *line)
{
    return strcmp(word(line, 2), "field") == 0 ? 4 : 3;
}

static void add_rules_for_subject(Machine *machine, const Line *line, Rule rule)
{
    rule.gpu = gpu_number(machine, line, 1);
    rule.function = FUNCTION_COUNT;
    if (rule_subject_end(line) == 3) {
        add_rules(machine, line, line->word[2], rule);
    } else {
        rule.field = natural(line, 3);
        add_rule(machine, line, rule);
    }
}

static void on_unsupported(Machine *machine, const Line *line)
{
    int at = rule_subject_end(line);
    expect_end(line, at + 2);
    Rule rule = {.result = NVML_ERROR_NOT_SUPPORTED, .when = window(line, at)};
    add_rules_for_subject(machine, line, rule);
}

static void on_fail(Machine *machine, const Line *line)
{
    int at = rule_subject_end(line);
    expect_end(line, at + 3);
    add_rules_for_subject(machine, line, (Rule){.result = natural(line, at), .when = window(line, at + 1)});
}

static void on_slow(Machine *machine, const Line *line)
{
    expect_end(line, 6);
    Rule rule = {.gpu = gpu_number(machine, line, 1), .when = window(line, 4)};
    rule.delay_ns = (long long)(number(line, 3) * 1e6);
    add_rules(machine, line, word(line, 2), rule);
}

static void on_init_error(Machine *machine, const Line *line)
{
    expect_end(line, 4);
    Rule rule = {.gpu = ANY_GPU, .result = natural(line, 1), .when = window(line, 2)};
    add_rules(machine, line, "nvmlInit_v2", rule);
    add_rules(machine, line, "nvmlInitWithFlags", rule);
}

static void on_latency(Machine *machine, const Line *line)
{
    expect_end(line, 2);
    machine->latency_ns = (long long)(number(line, 1) * 1e3);
}

static void on_pcie_latency(Machine *machine, const Line *line)
{
    expect_end(line, 2);
    machine->pcie_latency_ns = (long long)(number(line, 1) * 1e6);
}

static void on_lost_error(Machine *machine, const Line *line)
{
    expect_end(line, 2);
    machine->lost_error = natural(line, 1);
}

static void on_lost_needs_reinit(Machine *machine, const Line *line)
{
    expect_end(line, 2);
    machine->lost_needs_reinit = natural(line, 1);
}

static void on_xid(Machine *machine, const Line *line)
{
    expect_end(line, 4);
    int gpu = gpu_number(machine, line, 1);
    if (gpu == ANY_GPU)
        reject(line, "an XID is the event of one GPU");
    Xid xid = {(unsigned)gpu, natural(line, 2), number(line, 3)};
    machine->xid[room(line, machine->xid_count++, MAX_XIDS)] = xid;
}

/* `gpus` and `host` are read before all others, which depend on them. */
static void on_inventory(Machine *machine, const Line *line) { (void)machine, (void)line; }

/* ---- Lines about GPUs ---- */

static void on_lost(Gpu *gpu, const Line *line)
{
    expect_end(line, 4);
    Window *lost = &gpu->lost[room(line, gpu->lost_count++, MAX_WINDOWS)];
    if (strcmp(word(line, 2), "while") == 0) {
        *lost = (Window){INFINITY, INFINITY};
        if (strlen(word(line, 3)) >= sizeof gpu->lost_while)
            reject(line, "the path is too long");
        strcpy(gpu->lost_while, line->word[3]);
        return;
    }
    number(line, 2);
    *lost = window(line, 2);
}

static void on_reasons(Gpu *gpu, const Line *line)
{
    expect_end(line, 5);
    int i = room(line, gpu->reason_count++, MAX_WINDOWS);
    gpu->reason[i].bits = natural(line, 2);
    gpu->reason[i].when = window(line, 3);
}

static void on_ecc(Gpu *gpu, const Line *line)
{
    expect_end(line, 5);
    int i = room(line, gpu->ecc_count++, MAX_WINDOWS);
    const char *type = word(line, 2);
    if (strcmp(type, "corrected") && strcmp(type, "uncorrected"))
        reject(line, "ECC errors are corrected or uncorrected");
    gpu->ecc[i].type = type[0] == 'c' ? NVML_MEMORY_ERROR_CORRECTED : NVML_MEMORY_ERROR_UNCORRECTED;
    gpu->ecc[i].errors = natural(line, 3);
    gpu->ecc[i].when = (Window){number_or(line, 4, 0), INFINITY};
}

static void on_remapped(Gpu *gpu, const Line *line)
{
    expect_end(line, 6);
    for (int i = 0; i < 4; i++)
        gpu->remapped[i] = natural(line, 2 + i);
}

static void on_sensor(Gpu *gpu, const Line *line)
{
    const char *kind = word(line, 2);
    if (strcmp(kind, "instant") == 0) {
        expect_end(line, 3);
        gpu->instant = gpu->average = (Sensor){0, 0};
    } else if (strcmp(kind, "window") == 0) {
        expect_end(line, 5);
        gpu->instant = (Sensor){number(line, 3) / 1e3, number(line, 4) / 1e3};
    } else if (strcmp(kind, "mean") == 0) {
        expect_end(line, 5);
        gpu->average = (Sensor){number(line, 3) / 1e3, number_or(line, 4, 100) / 1e3};
    } else {
        reject(line, "no sensor '%s'", kind);
    }
}

static void on_sensor_error(Gpu *gpu, const Line *line)
{
    expect_end(line, 3);
    gpu->sensor_gain = 1 + number(line, 2) / 100;
}

static void on_counter(Gpu *gpu, const Line *line)
{
    const char *state = word(line, 2);
    bool takes_number = strcmp(state, "reset") == 0 || strcmp(state, "update") == 0;
    expect_end(line, takes_number ? 4 : 3);
    if (strcmp(state, "frozen") == 0)
        gpu->counter = COUNTER_FROZEN;
    else if (strcmp(state, "none") == 0)
        gpu->counter = COUNTER_NONE;
    else if (strcmp(state, "reset") == 0)
        gpu->counter_reset = number(line, 3);
    else if (strcmp(state, "update") == 0)
        gpu->counter_update = number(line, 3) / 1e3;
    else
        reject(line, "no counter '%s'", state);
}

static void on_gpm(Gpu *gpu, const Line *line)
{
    expect_end(line, 3);
    gpu->gpm = natural(line, 2);
}

static void on_race(Gpu *gpu, const Line *line)
{
    expect_end(line, 3);
    gpu->races = (int)natural(line, 2);
}

static void on_process_util(Gpu *gpu, const Line *line)
{
    const char *quality = word(line, 2);
    expect_end(line, 3);
    if (strcmp(quality, "stale") == 0)
        gpu->samples = SAMPLES_STALE;
    else if (strcmp(quality, "over100") == 0)
        gpu->samples = SAMPLES_OVER_100;
    else
        reject(line, "no process utilization '%s'", quality);
}

static unsigned process_id(const Line *line, int i)
{
    const char *text = word(line, i);
    if (strcmp(text, "self") == 0)
        return (unsigned)getpid();
    if (strcmp(text, "parent") == 0)
        return (unsigned)getppid();
    return natural(line, i);
}

static ProcessKind process_kind(const Line *line, int i)
{
    static const char *const kinds[] = {"compute", "graphics", "mps"};
    for (int kind = 0; kind < 3; kind++)
        if (strcmp(word(line, i), kinds[kind]) == 0)
            return (ProcessKind)kind;
    reject(line, "no kind of process '%s'", line->word[i]);
}

static void on_process(Gpu *gpu, const Line *line)
{
    expect_end(line, 8);
    const char *mig = strchr(line->word[1], '.');
    Process process = {.pid = process_id(line, 2), .mig = mig ? atoi(mig + 1) : -1};
    if (process.mig >= gpu->mig_count || (gpu->mig_enabled && !mig))
        reject(line, "no such MIG device: define it first, then name it as GPU.INDEX");
    bool unavailable = strcmp(word(line, 3), "unavailable") == 0;
    process.bytes = unavailable ? NVML_VALUE_NOT_AVAILABLE : natural(line, 3) * MIB;
    gpu->memory_by_process |= !unavailable;
    process.kind = process_kind(line, 4);
    process.sm_percent = strcmp(word(line, 5), "-") == 0 ? 0 : natural(line, 5);
    process.when = window(line, 6);
    gpu->process[room(line, gpu->process_count++, MAX_PROCESSES)] = process;
}

/* ---- Identity ---- */

/* The same GPU of the same host has the same UUID in every process and in every run. */
static void write_uuid(char *uuid, const char *prefix, unsigned host, unsigned gpu, unsigned mig)
{
    u64 half[2];
    for (u64 i = 0; i < 2; i++) {
        u64 z = 0x9e3779b97f4a7c15ull * (1 + i + 2 * (mig + 16 * (gpu + (u64)MAX_GPUS * host)));
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        half[i] = z ^ (z >> 31);
    }
    sprintf(uuid, "%s-%08llx-%04llx-%04llx-%04llx-%012llx", prefix, half[0] >> 32, half[0] >> 16 & 0xffff,
            (half[0] & 0x0fff) | 0x4000, (half[1] >> 48 & 0x3fff) | 0x8000, half[1] & 0xffffffffffff);
}

/* A word is a GPU instance, by the slices of its compute instances: `2+1` is 3 slices in two of them. */
static void read_mig(Machine *machine, Gpu *gpu, const Line *line)
{
    if (!gpu->model->mig)
        reject(line, "%s knows no MIG", gpu->model->name);
    gpu->mig_enabled = gpu->memory_by_process = true;
    unsigned total = 0;
    for (int i = 2; i < line->count; i++) {
        int first = gpu->mig_count;
        unsigned slices = 0;
        for (const char *text = line->word[i]; ; text++) {
            if (*text < '1' || *text > '7' || (text[1] && text[1] != '+'))
                reject(line, "'%s' is not a GPU instance like 3 or 2+1", line->word[i]);
            MigDevice *mig = &gpu->mig[room(line, gpu->mig_count, MAX_MIG)];
            mig->gpu_instance = (unsigned)(i - 1);
            mig->compute_instance = (unsigned)(gpu->mig_count - first);
            mig->compute_slices = (unsigned)(*text - '0');
            write_uuid(mig->uuid, "MIG", machine->host, gpu->index, (unsigned)++gpu->mig_count);
            slices += mig->compute_slices;
            if (*++text == '\0')
                break;
        }
        for (int k = first; k < gpu->mig_count; k++)
            gpu->mig[k].gpu_slices = slices;
        total += slices;
    }
    if (total > 7)
        reject(line, "a GPU has 7 slices, not %u", total);
}

static void on_mig(Machine *machine, const Line *line)
{
    int gpu = gpu_number(machine, line, 1);
    for (unsigned i = 0; i < machine->gpu_count; i++)
        if (gpu == ANY_GPU || (unsigned)gpu == i)
            read_mig(machine, &machine->gpu[i], line);
}

/* A healthy GPU in the middle of a training run. */
static void set_up_gpu(const Machine *machine, Gpu *gpu, unsigned index, const Model *model)
{
    *gpu = (Gpu){
        .index = index, .model = model,
        .instant = model->instant, .average = model->average, .sensor_gain = 1,
        .counter = model->energy_counter ? COUNTER_RUNS : COUNTER_NONE, .counter_reset = INFINITY,
        .counter_update = 0.1, .gpm = model->gpm,
    };
    write_uuid(gpu->uuid, "GPU", machine->host, index, 0);
    snprintf(gpu->serial, sizeof gpu->serial, "165052%03u%04u", machine->host % 1000, index);
    const struct { Signal signal; double value; } healthy[] = {
        {SIGNAL_util, 95}, {SIGNAL_memory_util, 45}, {SIGNAL_tensor, 40}, {SIGNAL_encoder, 0},
        {SIGNAL_decoder, 0}, {SIGNAL_temperature, 65}, {SIGNAL_memory_temperature, 72}, {SIGNAL_fan, 55},
        {SIGNAL_memory, floor(model->memory_mib * 0.7)}, {SIGNAL_sm_clock, model->sm_mhz * 0.9},
        {SIGNAL_mem_clock, model->mem_mhz},
        {SIGNAL_pcie_tx, 1200}, {SIGNAL_pcie_rx, 3400}, {SIGNAL_nvlink_tx, 20000}, {SIGNAL_nvlink_rx, 20000},
    };
    for (size_t i = 0; i < sizeof healthy / sizeof *healthy; i++)
        curve_constant(&gpu->signal[healthy[i].signal], healthy[i].value);
    curve_training(&gpu->signal[SIGNAL_power], full_scale(gpu, SIGNAL_power, NULL), 0);
}

/* ---- The file ---- */

static const struct {
    const char *name;
    void (*on_machine)(Machine *, const Line *);
    void (*on_gpu)(Gpu *, const Line *); /* once for each GPU that the second word names */
} directives[] = {
    {"gpus", on_inventory, NULL},
    {"host", on_inventory, NULL},
    {"latency_us", on_latency, NULL},
    {"pcie_latency_ms", on_pcie_latency, NULL},
    {"slow", on_slow, NULL},
    {"unsupported", on_unsupported, NULL},
    {"fail", on_fail, NULL},
    {"init_error", on_init_error, NULL},
    {"lost_error", on_lost_error, NULL},
    {"lost_needs_reinit", on_lost_needs_reinit, NULL},
    {"xid", on_xid, NULL},
    {"mig", on_mig, NULL},
    {"lost", NULL, on_lost},
    {"reasons", NULL, on_reasons},
    {"ecc", NULL, on_ecc},
    {"remapped", NULL, on_remapped},
    {"sensor", NULL, on_sensor},
    {"sensor_error", NULL, on_sensor_error},
    {"counter", NULL, on_counter},
    {"gpm", NULL, on_gpm},
    {"race", NULL, on_race},
    {"process", NULL, on_process},
    {"process_util", NULL, on_process_util},
};

static void for_each_gpu(Machine *machine, const Line *line, void (*on_gpu)(Gpu *, const Line *), int signal)
{
    int chosen = gpu_number(machine, line, 1);
    for (unsigned i = 0; i < machine->gpu_count; i++) {
        if (chosen != ANY_GPU && (unsigned)chosen != i)
            continue;
        if (on_gpu)
            on_gpu(&machine->gpu[i], line);
        else
            read_curve(&machine->gpu[i], (Signal)signal, line, 2);
    }
}

static void read_directive(Machine *machine, const Line *line)
{
    for (size_t i = 0; i < sizeof directives / sizeof *directives; i++)
        if (strcmp(directives[i].name, line->word[0]) == 0) {
            if (directives[i].on_machine)
                directives[i].on_machine(machine, line);
            else
                for_each_gpu(machine, line, directives[i].on_gpu, -1);
            return;
        }
    for (int signal = 0; signal < SIGNAL_COUNT; signal++)
        if (strcmp(signals[signal].name, line->word[0]) == 0) {
            for_each_gpu(machine, line, NULL, signal);
            return;
        }
    reject(line, "unknown line");
}

static bool next_line(FILE *file, char *text, Line *line)
{
    while (fgets(text, MAX_LINE, file)) {
        line->number++;
        line->count = 0;
        if (!strchr(text, '\n') && !feof(file))
            reject(line, "the line is longer than %d characters", MAX_LINE - 2);
        text[strcspn(text, "#\n")] = '\0';
        char *rest = text;
        for (char *next; (next = strtok_r(rest, " \t\r", &rest)); )
            line->word[room(line, line->count++, MAX_WORDS)] = next;
        if (line->count)
            return true;
    }
    return false;
}

typedef struct {
    unsigned gpus, host;
    const Model *model[MAX_GPUS];
} Inventory;

static Inventory take_inventory(FILE *file, Line *line, char *text)
{
    Inventory inventory = {0};
    bool given = false;
    while (next_line(file, text, line)) {
        if (strcmp(line->word[0], "host") == 0) {
            expect_end(line, 2);
            inventory.host = natural(line, 1);
        }
        if (strcmp(line->word[0], "gpus") != 0)
            continue;
        const Model *model = model_by_key(word(line, 2));
        if (!model)
            reject(line, "no board '%s'", line->word[2]);
        expect_end(line, 3);
        given = true;
        for (unsigned left = natural(line, 1); left > 0; left--)
            inventory.model[room(line, (int)inventory.gpus++, MAX_GPUS)] = model;
    }
    if (!given)
        inventory.model[0] = inventory.model[1] = model_by_key("H100"), inventory.gpus = 2;
    return inventory;
}

Machine *machine_from_scenario(const char *path)
{
    char text[MAX_LINE];
    Line line = {.path = path};
    FILE *file = fopen(path ? path : "/dev/null", "re");
    if (!file)
        reject(&line, "the scenario cannot be read");

    Inventory inventory = take_inventory(file, &line, text);
    Machine *machine = calloc(1, sizeof(Machine) + inventory.gpus * sizeof(Gpu));
    machine->lost_error = NVML_ERROR_GPU_IS_LOST;
    machine->host = inventory.host;
    machine->gpu_count = inventory.gpus;
    for (unsigned i = 0; i < inventory.gpus; i++)
        set_up_gpu(machine, &machine->gpu[i], i, inventory.model[i]);

    rewind(file);
    line.number = 0;
    while (next_line(file, text, &line))
        read_directive(machine, &line);
    fclose(file);
    return machine;
}
