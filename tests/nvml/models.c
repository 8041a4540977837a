/* The boards a scenario can name, with what NVML says about each of them. */
#include "machine.h"

#include <string.h>
#include <strings.h>

/* Update period and averaging window of the power sensors, as measured on the boards (arXiv 2312.02741). */
#define SENSOR_PASCAL_VOLTA {0.010, 0.020}
#define SENSOR_TURING_ADA {0.100, 0.100}
#define SENSOR_GA100_HOPPER {0.025, 0.100}
#define SENSOR_ONE_SECOND {1.000, 0.100}

static const Model models[] = {
    {
        .key = "H100", .name = "NVIDIA H100 80GB HBM3", .brand = NVML_BRAND_NVIDIA,
        .architecture = NVML_ARCH_HOPPER, .cuda_major = 9, .cuda_minor = 0, .pci_device_id = 0x233010de,
        .multiprocessors = 132, .cores = 16896, .memory_bus_bits = 5120,
        .memory_mib = 81559, .reserved_mib = 551, .nominal_gb = 80,
        .limit_w = 700, .min_limit_w = 200, .max_limit_w = 700,
        .sm_mhz = 1980, .mem_mhz = 2619, .video_mhz = 1545,
        .shutdown_c = 92, .slowdown_c = 89, .gpu_max_c = 87, .mem_max_c = 95,
        .nvlinks = 18, .pcie_generation = 5, .pcie_width = 16, .datacenter = true,
        .energy_counter = true, .power_instant_field = true, .power_average_field = true,
        .usage_is_average = true, .gpm = true, .mig = true,
        .instant = SENSOR_GA100_HOPPER, .average = SENSOR_ONE_SECOND,
    },
    {
        .key = "A100", .name = "NVIDIA A100-SXM4-80GB", .brand = NVML_BRAND_NVIDIA,
        .architecture = NVML_ARCH_AMPERE, .cuda_major = 8, .cuda_minor = 0, .pci_device_id = 0x20b210de,
        .multiprocessors = 108, .cores = 6912, .memory_bus_bits = 5120,
        .memory_mib = 81920, .reserved_mib = 616, .nominal_gb = 80,
        .limit_w = 400, .min_limit_w = 100, .max_limit_w = 400,
        .sm_mhz = 1410, .mem_mhz = 1593, .video_mhz = 1290,
        .shutdown_c = 92, .slowdown_c = 89, .gpu_max_c = 85, .mem_max_c = 95,
        .nvlinks = 12, .pcie_generation = 4, .pcie_width = 16, .datacenter = true,
        .energy_counter = true, .power_instant_field = true, .mig = true,
        .instant = SENSOR_GA100_HOPPER,
    },
    {
        .key = "L4", .name = "NVIDIA L4", .brand = NVML_BRAND_NVIDIA,
        .architecture = NVML_ARCH_ADA, .cuda_major = 8, .cuda_minor = 9, .pci_device_id = 0x27b810de,
        .multiprocessors = 58, .cores = 7424, .memory_bus_bits = 192,
        .memory_mib = 23034, .reserved_mib = 479, .nominal_gb = 24,
        .limit_w = 72, .min_limit_w = 40, .max_limit_w = 72,
        .sm_mhz = 2040, .mem_mhz = 6251, .video_mhz = 1770,
        .shutdown_c = 94, .slowdown_c = 91, .gpu_max_c = 86,
        .pcie_generation = 4, .pcie_width = 16, .datacenter = true,
        .energy_counter = true, .power_instant_field = true, .power_average_field = true,
        .usage_is_average = true,
        .instant = SENSOR_TURING_ADA, .average = SENSOR_ONE_SECOND,
    },
    {
        .key = "RTX4090", .name = "NVIDIA GeForce RTX 4090", .brand = NVML_BRAND_GEFORCE,
        .architecture = NVML_ARCH_ADA, .cuda_major = 8, .cuda_minor = 9, .pci_device_id = 0x268410de,
        .multiprocessors = 128, .cores = 16384, .memory_bus_bits = 384,
        .memory_mib = 24564, .reserved_mib = 346, .nominal_gb = 24,
        .limit_w = 450, .min_limit_w = 150, .max_limit_w = 600,
        .sm_mhz = 3105, .mem_mhz = 10501, .video_mhz = 2415,
        .shutdown_c = 100, .slowdown_c = 97, .gpu_max_c = 90,
        .fans = 2, .pcie_generation = 4, .pcie_width = 16,
        .energy_counter = true, .power_instant_field = true, .power_average_field = true,
        .usage_is_average = true,
        .instant = SENSOR_TURING_ADA, .average = SENSOR_ONE_SECOND,
    },
    {
        .key = "T4", .name = "Tesla T4", .brand = NVML_BRAND_TESLA,
        .architecture = NVML_ARCH_TURING, .cuda_major = 7, .cuda_minor = 5, .pci_device_id = 0x1eb810de,
        .multiprocessors = 40, .cores = 2560, .memory_bus_bits = 256,
        .memory_mib = 15360, .reserved_mib = 446, .nominal_gb = 16,
        .limit_w = 70, .min_limit_w = 60, .max_limit_w = 70,
        .sm_mhz = 1590, .mem_mhz = 5001, .video_mhz = 1470,
        .shutdown_c = 96, .slowdown_c = 93, .gpu_max_c = 85,
        .pcie_generation = 3, .pcie_width = 16, .datacenter = true,
        .energy_counter = true,
        .instant = SENSOR_TURING_ADA,
    },
    {
        .key = "V100", .name = "Tesla V100-SXM2-16GB", .brand = NVML_BRAND_TESLA,
        .architecture = NVML_ARCH_VOLTA, .cuda_major = 7, .cuda_minor = 0, .pci_device_id = 0x1db110de,
        .multiprocessors = 80, .cores = 5120, .memory_bus_bits = 4096,
        .memory_mib = 16384, .reserved_mib = 225, .nominal_gb = 16,
        .limit_w = 300, .min_limit_w = 150, .max_limit_w = 300,
        .sm_mhz = 1530, .mem_mhz = 877, .video_mhz = 1372,
        .shutdown_c = 90, .slowdown_c = 87, .gpu_max_c = 83, .mem_max_c = 85,
        .nvlinks = 6, .pcie_generation = 3, .pcie_width = 16, .datacenter = true,
        .energy_counter = true,
        .instant = SENSOR_PASCAL_VOLTA,
    },
    {
        .key = "P100", .name = "Tesla P100-PCIE-16GB", .brand = NVML_BRAND_TESLA,
        .architecture = NVML_ARCH_PASCAL, .cuda_major = 6, .cuda_minor = 0, .pci_device_id = 0x15f810de,
        .multiprocessors = 56, .cores = 3584, .memory_bus_bits = 4096,
        .memory_mib = 16384, .reserved_mib = 104, .nominal_gb = 16,
        .limit_w = 250, .min_limit_w = 125, .max_limit_w = 250,
        .sm_mhz = 1328, .mem_mhz = 715, .video_mhz = 1189,
        .shutdown_c = 85, .slowdown_c = 82, .gpu_max_c = 80, .mem_max_c = 85,
        .pcie_generation = 3, .pcie_width = 16, .datacenter = true,
        .instant = SENSOR_PASCAL_VOLTA,
    },
    {
        .key = "GB10", .name = "NVIDIA GB10", .brand = NVML_BRAND_NVIDIA,
        .architecture = NVML_ARCH_BLACKWELL, .cuda_major = 12, .cuda_minor = 1, .pci_device_id = 0x2e1210de,
        .multiprocessors = 48, .cores = 6144, .memory_bus_bits = 256,
        .sm_mhz = 3003, .mem_mhz = 4266, .video_mhz = 2418,
        .shutdown_c = 100, .slowdown_c = 97, .gpu_max_c = 90,
        .pcie_generation = 5, .pcie_width = 4,
        .energy_counter = true, .power_instant_field = true, .power_average_field = true,
        .usage_is_average = true, .gpm = true,
        .instant = SENSOR_TURING_ADA, .average = SENSOR_ONE_SECOND,
    },
};

const Model *model_by_key(const char *key)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcasecmp(models[i].key, key) == 0)
            return &models[i];
    return NULL;
}
