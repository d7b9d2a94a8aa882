/* A libnvidia-ml.so.1 that answers from a scenario: compiled against the real nvml.h, loaded by the unchanged nvidia-ml-py.
 *
 * $FAKE_NVML_SCENARIO names a text file, read anew by each nvmlInit:
 *
 * xidwatch/nvml/scenario.py describes the form. Here `block` also creates $FAKE_NVML_BLOCKED; `dstate` creates a file in
 * $FAKE_NVML_FROZEN: D state for as long as that is frozen; `at` counts from $FAKE_NVML_BEGAN, seconds since 1970. Instead of
 * `lacks`, OLD_DRIVER leaves out the functions that came with R525 and later. $FAKE_NVML_DEVICE stands for /dev/nvidiactl: it is
 * open from nvmlInit to nvmlShutdown.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <strings.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_GPUS = 16, MOST_LINES = 4000, MOST_OPEN = 64 };

struct nvmlDevice_st { int gpu, mig; };
struct line { int who; char key[96], value[256]; };

static struct nvmlDevice_st gpus[MOST_GPUS], migs[MOST_GPUS][8];
static struct line lines[MOST_LINES];
static int line_count, gpu_count, initialised, open_count, opened[MOST_OPEN];

/* the scenario */

static void load(const char *path)
{
    char text[512], who[32], key[96], folder[512];
    int used;
    double begins = 0, elapsed = getenv("FAKE_NVML_BEGAN") ? (double)time(NULL) - atof(getenv("FAKE_NVML_BEGAN")) : 0;
    FILE *file = fopen(path, "r");
    if (!file) { fprintf(stderr, "fake NVML: no scenario %s\n", path); abort(); }
    while (fgets(text, sizeof text, file)) {
        text[strcspn(text, "#\n")] = 0;
        if (sscanf(text, "%31s %95s%n", who, key, &used) < 2) continue;
        if (!strcmp(who, "at")) begins = atof(key);
        if ((begins > 0 && begins > elapsed) || !strcmp(who, "at")) continue;
        if (!strcmp(who, "include")) {
            snprintf(folder, sizeof folder, "%s", path);
            char inner[1024];
            snprintf(inner, sizeof inner, "%s/%s", dirname(folder), key);
            load(inner);
        } else if (!strcmp(who, "count")) {
            gpu_count = atoi(key);
        } else if (line_count < MOST_LINES) {
            struct line *line = &lines[line_count++];
            line->who = !strcmp(who, "*") ? -1 : !strcmp(who, "node") ? -2 : atoi(who);
            char *value = text + used;
            while (*value == ' ') value++;
            char *end = value + strlen(value);
            while (end > value && end[-1] == ' ') *--end = 0;
            /* What a function does is kept under "what function". */
            if (!strcmp(key, "fail") || !strcmp(key, "block") || !strcmp(key, "slow") || !strcmp(key, "dstate") || !strcmp(key, "crash")) {
                char function[80] = "";
                sscanf(value, "%79s%n", function, &used);
                snprintf(line->key, sizeof line->key, "%.10s %.79s", key, function);
                value += used;
                while (*value == ' ') value++;
            } else {
                snprintf(line->key, sizeof line->key, "%s", key);
            }
            snprintf(line->value, sizeof line->value, "%.255s", value);
        }
    }
    fclose(file);
}

static const char *find(int who, const char *key)
{
    for (int i = line_count - 1; i >= 0; i--)
        if ((lines[i].who == who || (who >= 0 && lines[i].who == -1)) && !strcmp(lines[i].key, key)) return lines[i].value;
    return NULL;
}

static const char *deed(int who, const char *what, const char *function)
{
    char key[96];
    snprintf(key, sizeof key, "%s %s", what, function);
    const char *found = find(who, key);
    if (found || who < 0) return found;
    snprintf(key, sizeof key, "%s *", what);
    return find(who, key);
}

static nvmlReturn_t enter(int who, const char *function)
{
    const char *told;
    if (!initialised && strncmp(function, "nvmlInit", 8)) return NVML_ERROR_UNINITIALIZED;
    if ((told = deed(who, "slow", function))) {
        struct timespec pause = { atoi(told) / 1000, atoi(told) % 1000 * 1000000L };
        nanosleep(&pause, NULL);
    }
    if (deed(who, "block", function)) {
        const char *sign = getenv("FAKE_NVML_BLOCKED");
        if (sign) close(open(sign, O_CREAT | O_WRONLY, 0600));
        for (;;) pause();
    }
    if (deed(who, "crash", function)) abort();
    if (deed(who, "dstate", function)) {
        char path[512];
        const char *folder = getenv("FAKE_NVML_FROZEN");
        snprintf(path, sizeof path, "%s/touched", folder ? folder : "/nowhere");
        int file = open(path, O_CREAT | O_WRONLY, 0600);
        if (file >= 0) close(file);
    }
    if ((told = deed(who, "fail", function))) return (nvmlReturn_t)atoi(told);
    return NVML_SUCCESS;
}

#define NODE() do { nvmlReturn_t r = enter(-2, __func__); if (r) return r; } while (0)
#define DEVICE(d) do { if (!(d)) return NVML_ERROR_INVALID_ARGUMENT; nvmlReturn_t r = enter((d)->gpu, __func__); if (r) return r; } while (0)

static nvmlReturn_t numbers(int who, const char *key, int count, ...)
{
    const char *text = find(who, key);
    if (!text) return NVML_ERROR_NOT_SUPPORTED;
    va_list into;
    va_start(into, count);
    for (int i = 0; i < count; i++) {
        char *end;
        *va_arg(into, unsigned long long *) = strtoull(text, &end, 0);
        text = end;
    }
    va_end(into);
    return NVML_SUCCESS;
}

static nvmlReturn_t one(nvmlDevice_t device, const char *key, unsigned int *into)
{
    unsigned long long value;
    nvmlReturn_t result = numbers(device->gpu, key, 1, &value);
    if (!result) *into = (unsigned int)value;
    return result;
}

static nvmlReturn_t text(int who, const char *key, char *into, unsigned int length)
{
    const char *found = find(who, key);
    if (!found) return NVML_ERROR_NOT_SUPPORTED;
    snprintf(into, length, "%s", found);
    return NVML_SUCCESS;
}

/* the node */

static void open_device(void)
{
    const char *path = getenv("FAKE_NVML_DEVICE");
    if (path && open_count < MOST_OPEN) opened[open_count++] = open(path, O_RDONLY);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    const char *path = getenv("FAKE_NVML_SCENARIO");
    if (!path) return NVML_ERROR_DRIVER_NOT_LOADED;
    line_count = gpu_count = 0;
    load(path);
    for (int i = 0; i < MOST_GPUS; i++) {
        gpus[i] = (struct nvmlDevice_st){ i, -1 };
        for (int m = 0; m < 8; m++) migs[i][m] = (struct nvmlDevice_st){ i, m };
    }
    NODE();
    open_device();
    initialised = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void)
{
    NODE();
    const char *leak = find(-2, "leak");
    while (!leak && open_count) close(opened[--open_count]);
    initialised = 0;
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) { (void)result; return "an error of the fake"; }
nvmlReturn_t nvmlSystemGetDriverVersion(char *into, unsigned int length) { NODE(); return text(-2, "driver", into, length); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *into, unsigned int length) { NODE(); return text(-2, "nvml", into, length); }

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *into)
{
    NODE();
    unsigned long long value;
    nvmlReturn_t result = numbers(-2, "cuda", 1, &value);
    if (!result) *into = (int)value;
    return result;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *into) { NODE(); *into = (unsigned int)gpu_count; return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *into)
{
    NODE();
    if ((int)index >= gpu_count) return NVML_ERROR_INVALID_ARGUMENT;
    *into = &gpus[index];
    DEVICE(*into);
    open_device();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *slot, nvmlDevice_t *into)
{
    NODE();
    for (int i = 0; i < gpu_count; i++) {
        const char *own = find(i, "pci");
        if (!own || strcasecmp(own, slot)) continue;
        *into = &gpus[i];
        DEVICE(*into);
        open_device();
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

/* one GPU */

#define TEXT(name, key) \
    nvmlReturn_t name(nvmlDevice_t device, char *into, unsigned int length) { DEVICE(device); return text(device->gpu, key, into, length); }
#define NUMBER(name, key) \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *into) { DEVICE(device); return one(device, key, into); }

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetBoardPartNumber, "part_number")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_generation")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_width")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie_replays")
NUMBER(nvmlDeviceGetPowerUsage, "power_mw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
#ifndef OLD_DRIVER
NUMBER(nvmlDeviceGetModuleId, "module_id")
#endif

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *into)
{
    DEVICE(device);
    *into = (unsigned int)device->gpu;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *into, unsigned int length)
{
    DEVICE(device);
    if (device->mig < 0) return text(device->gpu, "uuid", into, length);
    char key[32];
    snprintf(key, sizeof key, "mig.%d", device->mig);
    const char *found = find(device->gpu, key);
    if (!found) return NVML_ERROR_NOT_FOUND;
    snprintf(into, length, "%.*s", (int)strcspn(found, " "), found);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *into)
{
    DEVICE(device);
    memset(into, 0, sizeof *into);
    return text(device->gpu, "pci", into->busId, sizeof into->busId);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *into)
{
    DEVICE(device);
    return one(device, "persistence_mode", (unsigned int *)into);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *now, nvmlEnableState_t *pending)
{
    DEVICE(device);
    nvmlReturn_t result = one(device, "ecc_mode", (unsigned int *)now);
    *pending = *now;
    return result;
}

/* ecc.VOLATILE|AGGREGATE.CORRECTED|UNCORRECTED total l1 l2 dram registers texture shm cbu sram */
static nvmlReturn_t ecc(nvmlDevice_t device, unsigned int type, unsigned int lifetime, int place, unsigned long long *into)
{
    char key[64];
    unsigned long long v[9];
    snprintf(key, sizeof key, "ecc.%s.%s", lifetime ? "aggregate" : "volatile", type ? "uncorrected" : "corrected");
    nvmlReturn_t result = numbers(device->gpu, key, 9, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &v[8]);
    if (!result) *into = v[place];
    return result;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t lifetime, unsigned long long *into)
{
    DEVICE(device);
    return ecc(device, type, lifetime, 0, into);
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(
    nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t lifetime, nvmlMemoryLocation_t place, unsigned long long *into)
{
    DEVICE(device);
    /* Texture memory and L1 are of older chips, as on the real ones. */
    if (place == NVML_MEMORY_LOCATION_TEXTURE_MEMORY || place == NVML_MEMORY_LOCATION_TEXTURE_SHM) return NVML_ERROR_NOT_SUPPORTED;
    return ecc(device, type, lifetime, (int)place + 1, into);
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count, unsigned long long *pages)
{
    DEVICE(device);
    unsigned int have = 0;
    nvmlReturn_t result = one(device, cause ? "retired.uncorrected" : "retired.corrected", &have);
    if (result) return result;
    unsigned int room = *count;
    *count = have;
    if (room < have) return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; pages && i < have; i++) pages[i] = 0x1000ULL * (i + 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *into)
{
    DEVICE(device);
    return one(device, "retired.pending", (unsigned int *)into);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable, unsigned int *pending, unsigned int *failed)
{
    DEVICE(device);
    unsigned long long v[4];
    nvmlReturn_t result = numbers(device->gpu, "remapped_rows", 4, &v[0], &v[1], &v[2], &v[3]);
    if (result) return result;
    *correctable = (unsigned int)v[0]; *uncorrectable = (unsigned int)v[1]; *pending = (unsigned int)v[2]; *failed = (unsigned int)v[3];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, nvmlRowRemapperHistogramValues_t *into)
{
    DEVICE(device);
    unsigned long long v[5];
    nvmlReturn_t result = numbers(device->gpu, "spare_rows", 5, &v[0], &v[1], &v[2], &v[3], &v[4]);
    if (!result)
        *into = (nvmlRowRemapperHistogramValues_t){
            .max = (unsigned int)v[0], .high = (unsigned int)v[1], .partial = (unsigned int)v[2], .low = (unsigned int)v[3], .none = (unsigned int)v[4] };
    return result;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *into)
{
    DEVICE(device);
    return numbers(device->gpu, "clock_reasons", 1, into);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor, unsigned int *into)
{
    DEVICE(device);
    (void)sensor;
    return one(device, "temperature", into);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *into)
{
    DEVICE(device);
    nvmlReturn_t result = numbers(device->gpu, "memory_mib", 2, &into->total, &into->used);
    into->total <<= 20;
    into->used <<= 20;
    into->free = into->total - into->used;
    return result;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *into)
{
    DEVICE(device);
    unsigned long long gpu, memory;
    nvmlReturn_t result = numbers(device->gpu, "utilization", 2, &gpu, &memory);
    if (!result) *into = (nvmlUtilization_t){ (unsigned int)gpu, (unsigned int)memory };
    return result;
}

#ifndef OLD_DRIVER
/* gpm SM TENSOR DRAM, in percent */
struct nvmlGpmSample_st { int gpu; };

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *into)
{
    DEVICE(device);
    into->isSupportedDevice = find(device->gpu, "gpm") != NULL;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *into)
{
    *into = calloc(1, sizeof **into);
    return *into ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    free(sample);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
    DEVICE(device);
    sample->gpu = device->gpu;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *asked)
{
    unsigned long long sm, tensor, dram;
    if (asked->version != NVML_GPM_METRICS_GET_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!asked->sample1 || !asked->sample2 || asked->sample1->gpu != asked->sample2->gpu) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = numbers(asked->sample1->gpu, "gpm", 3, &sm, &tensor, &dram);
    if (result) return result;
    for (unsigned int i = 0; i < asked->numMetrics; i++) {
        unsigned int metric = asked->metrics[i].metricId;
        asked->metrics[i].nvmlReturn = metric == 2 || metric == 5 || metric == 10 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        asked->metrics[i].value = (double)(metric == 2 ? sm : metric == 5 ? tensor : dram);
    }
    return NVML_SUCCESS;
}
#endif

/* field.N VALUE, or for a link field.N.LINK VALUE */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    DEVICE(device);
    for (int i = 0; i < count; i++) {
        char key[32], own[64];
        unsigned long long value;
        snprintf(key, sizeof key, "field.%u", values[i].fieldId);
        snprintf(own, sizeof own, "%s.%u", key, values[i].scopeId);
        values[i].nvmlReturn = numbers(device->gpu, find(device->gpu, own) ? own : key, 1, &value);
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        if (values[i].nvmlReturn == NVML_SUCCESS) values[i].value.uiVal = (unsigned int)value;
    }
    return NVML_SUCCESS;
}

/* nvlinks STATE STATE ... */
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *into)
{
    DEVICE(device);
    const char *states = find(device->gpu, "nvlinks");
    if (!states) return NVML_ERROR_NOT_SUPPORTED;
    if (link * 2 >= strlen(states)) return NVML_ERROR_INVALID_ARGUMENT;
    *into = states[link * 2] == '1' ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, nvmlNvLinkErrorCounter_t counter, unsigned long long *into)
{
    DEVICE(device);
    char key[64];
    snprintf(key, sizeof key, "nvlink_errors.%u.%u", link, (unsigned int)counter);
    return numbers(device->gpu, find(device->gpu, key) ? key : "nvlink_errors", 1, into);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *into)
{
    DEVICE(device);
    (void)link;
    memset(into, 0, sizeof *into);
    return text(device->gpu, "nvlink_remote", into->busId, sizeof into->busId);
}

/* process.compute.0 PID MIB [GI CI] */
static nvmlReturn_t processes(nvmlDevice_t device, const char *kind, unsigned int *count, nvmlProcessInfo_t *into)
{
    unsigned int have = 0, room = *count;
    for (; have < 16; have++) {
        char key[64];
        unsigned int pid, gi = 0xFFFFFFFF, ci = 0xFFFFFFFF;
        unsigned long long mib;
        snprintf(key, sizeof key, "process.%s.%u", kind, have);
        const char *told = find(device->gpu, key);
        if (!told || sscanf(told, "%u %llu %u %u", &pid, &mib, &gi, &ci) < 2) break;
        if (into && have < room) into[have] = (nvmlProcessInfo_t){ pid, mib << 20, gi, ci };
    }
    *count = have;
    return have > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define PROCESSES(name, kind) \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *into) { DEVICE(device); return processes(device, kind, count, into); }
#ifndef OLD_DRIVER
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps")
#else
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")
#endif

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending)
{
    DEVICE(device);
    unsigned long long v[2];
    nvmlReturn_t result = numbers(device->gpu, "mig_mode", 2, &v[0], &v[1]);
    if (result) return result;
    *now = (unsigned int)v[0];
    *pending = (unsigned int)v[1];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *into) { DEVICE(device); *into = 7; return NVML_SUCCESS; }

/* mig.N UUID GI CI */
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *into)
{
    DEVICE(device);
    char key[32];
    snprintf(key, sizeof key, "mig.%u", index);
    if (index > 7 || !find(device->gpu, key)) return NVML_ERROR_NOT_FOUND;
    *into = &migs[device->gpu][index];
    return NVML_SUCCESS;
}

static nvmlReturn_t instance(nvmlDevice_t device, int which, unsigned int *into)
{
    char key[32], uuid[128];
    unsigned int v[2];
    snprintf(key, sizeof key, "mig.%d", device->mig);
    const char *told = device->mig < 0 ? NULL : find(device->gpu, key);
    if (!told || sscanf(told, "%127s %u %u", uuid, &v[0], &v[1]) < 3) return NVML_ERROR_NOT_SUPPORTED;
    *into = v[which];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *into) { DEVICE(device); return instance(device, 0, into); }
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *into) { DEVICE(device); return instance(device, 1, into); }

#ifndef OLD_DRIVER
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *into)
{
    DEVICE(device);
    return numbers(device->gpu, "clock_reasons", 1, into);
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *into)
{
    DEVICE(device);
    if (into->version != nvmlEccSramErrorStatus_v1) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned long long exceeded = 0;
    nvmlReturn_t result = numbers(device->gpu, "sram", 4, &exceeded, &into->aggregateUncParity, &into->aggregateUncSecDed, &into->aggregateCor);
    into->bThresholdExceeded = (unsigned int)exceeded;
    return result;
}

/* place CHASSIS SLOT TRAY HOST MODULE */
nvmlReturn_t nvmlDeviceGetPlatformInfo(nvmlDevice_t device, nvmlPlatformInfo_t *into)
{
    DEVICE(device);
    if (into->version != nvmlPlatformInfo_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    char chassis[17];
    unsigned int v[4];
    const char *told = find(device->gpu, "place");
    if (!told || sscanf(told, "%16s %u %u %u %u", chassis, &v[0], &v[1], &v[2], &v[3]) < 5) return NVML_ERROR_NOT_SUPPORTED;
    memset(into->chassisSerialNumber, 0, sizeof into->chassisSerialNumber);
    memcpy(into->chassisSerialNumber, chassis, strlen(chassis));
    into->slotNumber = (unsigned char)v[0];
    into->trayIndex = (unsigned char)v[1];
    into->hostId = (unsigned char)v[2];
    into->moduleId = (unsigned char)v[3];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *enabled, unsigned int *usual)
{
    DEVICE(device);
    *usual = 1;
    return one(device, "gsp", enabled);
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *into) { DEVICE(device); return text(-2, "driver", into, 0x40); }

/* fabric STATE STATUS HEALTH_MASK */
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *into)
{
    DEVICE(device);
    if (into->version != nvmlGpuFabricInfo_v2 && into->version != nvmlGpuFabricInfo_v3) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned long long v[3];
    nvmlReturn_t result = numbers(device->gpu, "fabric", 3, &v[0], &v[1], &v[2]);
    if (result) return result;
    into->state = (nvmlGpuFabricState_t)v[0];
    into->status = (nvmlReturn_t)v[1];
    into->healthMask = (unsigned int)v[2];
    return NVML_SUCCESS;
}
#endif
