package provider

import (
	"testing"

	"pgregory.net/rapid"
)

func TestNormalizeGPU(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"nvidia_h100":                    {"H100", "nvidia"},
		"H100 (80 GB SXM5)":              {"H100", "nvidia"},
		"NVIDIA H100 NVL":                {"H100-NVL", "nvidia"},
		"NVIDIA H100 PCIe":               {"H100", "nvidia"},
		"GH200 (96 GB)":                  {"GH200", "nvidia"},
		"H200":                           {"H200", "nvidia"},
		"B200":                           {"B200", "nvidia"},
		"NVIDIA A100-SXM4-80GB":          {"A100-80GB", "nvidia"},
		"a100 40gb pcie":                 {"A100-40GB", "nvidia"},
		"A100":                           {"A100", "nvidia"},
		"A100-80GB":                      {"A100-80GB", "nvidia"},
		"Tesla V100-SXM2-16GB":           {"V100-16GB", "nvidia"},
		"V100 (32 GB)":                   {"V100-32GB", "nvidia"},
		"Tesla T4":                       {"T4", "nvidia"},
		"Tesla P100-PCIE-16GB":           {"P100", "nvidia"},
		"L4":                             {"L4", "nvidia"},
		"l40s":                           {"L40S", "nvidia"},
		"NVIDIA L40":                     {"L40", "nvidia"},
		"NVIDIA A10":                     {"A10", "nvidia"},
		"NVIDIA A10G":                    {"A10G", "nvidia"},
		"NVIDIA A40":                     {"A40", "nvidia"},
		"amd_mi350x":                     {"MI350X", "amd"},
		"AMD Instinct MI300X OAM":        {"MI300X", "amd"},
		"NVIDIA GeForce RTX 4090":        {"RTX-4090", "nvidia"},
		"RTX_4090":                       {"RTX-4090", "nvidia"},
		"RTX4090":                        {"RTX-4090", "nvidia"},
		"GeForce RTX 3080 Ti":            {"RTX-3080-Ti", "nvidia"},
		"NVIDIA RTX 6000 Ada Generation": {"RTX-6000-Ada", "nvidia"},
		"NVIDIA RTX 4000 Ada Generation": {"RTX-4000-Ada", "nvidia"},
		"rtx4000 ada x1":                 {"RTX-4000-Ada", "nvidia"},
		"NVIDIA RTX PRO 6000":            {"RTX-PRO-6000", "nvidia"},
		"Quadro RTX 6000":                {"Quadro-RTX-6000", "nvidia"},
		"Quadro P4000":                   {"Quadro-P4000", "nvidia"},
		"RTX A4000":                      {"RTX-A4000", "nvidia"},
		"Radeon Pro V710":                {"Radeon-PRO-V710", "amd"},
		"Gaudi2":                         {"Gaudi2", "intel"},
		"Acme 9000":                      {"Acme-9000", ""},
		"":                               {"unknown", ""},
		"???":                            {"unknown", ""},
		"NVIDIA":                         {"unknown", "nvidia"},
		"2x NVIDIA L4":                   {"L4", "nvidia"},
	} {
		model, vendor := NormalizeGPU(name)
		if model != want[0] || vendor != want[1] {
			t.Errorf("%q is %q of %q, not %v", name, model, vendor, want)
		}
	}
}

func TestNormalizeGPUAlwaysFits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		model, _ := NormalizeGPU(name)
		if !gpuForm.MatchString(model) {
			t.Fatalf("%q becomes %q", name, model)
		}
		if again, _ := NormalizeGPU(model); again != model {
			t.Fatalf("%q becomes %q and then %q", name, model, again)
		}
	})
}
