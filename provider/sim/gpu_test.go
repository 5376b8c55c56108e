package sim_test

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"

	"better/compute/provider/sim"
)

func TestNormalizeGPU(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		memory float64
		model  string
		vendor string
	}{
		{"nvidia_h100_80gb_hbm3", 80, "H100", "nvidia"},
		{"nvidia_h100", 80, "H100", "nvidia"},
		{"H100 (80 GB SXM5)", 0, "H100", "nvidia"},
		{"NVIDIA H100 NVL", 94, "H100-NVL", "nvidia"},
		{"h200x", 0, "H200X", "unknown"},
		{"GH200 (96 GB)", 96, "GH200", "nvidia"},
		{"NVIDIA A100-SXM4-40GB", 0, "A100-40GB", "nvidia"},
		{"A100 (80 GB SXM4)", 80, "A100-80GB", "nvidia"},
		{"a100", 40, "A100-40GB", "nvidia"},
		{"A100", 0, "A100", "nvidia"},
		{"A100 PCIe", 79.2, "A100-80GB", "nvidia"},
		{"Tesla V100-SXM2-16GB", 0, "V100-16GB", "nvidia"},
		{"V100", 32, "V100-32GB", "nvidia"},
		{"nvidia_l40s", 48, "L40S", "nvidia"},
		{"L40", 48, "L40", "nvidia"},
		{"Tesla T4", 16, "T4", "nvidia"},
		{"amd_mi350x", 288, "MI350X", "amd"},
		{"AMD Instinct MI300X", 192, "MI300X", "amd"},
		{"RTX6000", 24, "RTX-6000", "nvidia"},
		{"Quadro RTX 6000", 24, "Quadro-RTX-6000", "nvidia"},
		{"NVIDIA RTX 4000 Ada Generation", 20, "RTX-4000-Ada", "nvidia"},
		{"NVIDIA RTX PRO 6000 Blackwell Server Edition", 96, "RTX-PRO-6000", "nvidia"},
		{"RTX-PRO-6000", 0, "RTX-PRO-6000", "nvidia"},
		{"NVIDIA GeForce RTX 4090", 24, "RTX-4090", "nvidia"},
		{"RTX_4090", 24, "RTX-4090", "nvidia"},
		{"RTX 3080 Ti", 12, "RTX-3080-Ti", "nvidia"},
		{"8x H100 SXM", 80, "H100", "nvidia"},
		{"Wafer Scale Engine", 0, "Wafer-Scale-Engine", "unknown"},
		{"", 0, "unknown", "unknown"},
		{"NVIDIA", 0, "unknown", "nvidia"},
		{"日本", 0, "unknown", "unknown"},
	} {
		if model, vendor := sim.NormalizeGPU(test.name, test.memory); model != test.model || vendor != test.vendor {
			t.Errorf("%q with %g GiB is %q of %q, want %q of %q", test.name, test.memory, model, vendor, test.model, test.vendor)
		}
	}
}

func TestNormalizeGPUAlwaysFits(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(`\A[A-Za-z0-9-]{1,32}\z`)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`([A-Za-z0-9]{0,9}[ _./()-]?(X|x|GB|RTX)?){0,8}`)).Draw(t, "name")
		model, _ := sim.NormalizeGPU(name, rapid.Float64().Draw(t, "memory"))
		if !pattern.MatchString(model) {
			t.Fatalf("%q is %q", name, model)
		}
		if again, _ := sim.NormalizeGPU(model, 0); again != model && len(model) < 32 {
			t.Fatalf("%q is %q, and that is %q", name, model, again)
		}
	})
}
