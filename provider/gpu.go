package provider

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const maxGPUName = 32

// gpuFamilies are the models whose spelling is ours, by vendor.
var gpuFamilies = []struct {
	vendor string
	models []string
}{
	{"nvidia", []string{
		"GH200", "GB200", "GB300", "B300", "B200", "B100", "H200", "H100", "H20", "L40S", "L40", "L4",
		"A100", "A800", "A40", "A30", "A16", "A10G", "A10", "A2", "V100", "P100", "P40", "P4", "T4G", "T4", "K80", "M60",
	}},
	{"amd", []string{"MI355X", "MI350X", "MI325X", "MI300X", "MI300A", "MI250X", "MI250", "MI210", "MI100"}},
	{"intel", []string{"Gaudi3", "Gaudi2"}},
}

// gpuMemories are the sizes in GB of the families that are sold in several.
var gpuMemories = map[string][]int{"A100": {40, 80}, "V100": {16, 32}}

var (
	gpuWord  = regexp.MustCompile(`[A-Za-z]+[0-9]*[A-Za-z]*|[0-9]+[A-Za-z]*`)
	gpuSize  = regexp.MustCompile(`\A([0-9]{1,4})(?:gb|gib|g)?\z`)
	rtxModel = regexp.MustCompile(`\A(rtx|gtx)([0-9]{3,4})(ti|super|ada)?\z`)
	gpuCount = regexp.MustCompile(`\A(?:x[0-9]{1,2}|[0-9]{1,2}x)\z`)
)

// noise are words that tell a vendor, a form or nothing.
var noise = map[string]bool{
	"nvidia": true, "amd": true, "intel": true, "geforce": true, "tesla": true, "instinct": true, "gpu": true, "gpus": true,
	"sxm": true, "sxm2": true, "sxm3": true, "sxm4": true, "sxm5": true, "sxm6": true, "pcie": true, "oam": true,
	"habana": true, "tensor": true, "core": true, "graphics": true, "card": true, "generation": true,
}

// NormalizeGPU gives the one spelling of a GPU's name and its vendor, whatever a provider calls it: the family, and the memory
// where one family has several (`nvidia_a100 80GB PCIe` is `A100-80GB`). A name that is not known comes back cleaned, matching
// ^[A-Za-z0-9-]{1,32}$, and with an empty vendor when nothing tells it.
func NormalizeGPU(name string) (model, vendor string) {
	words := gpuWord.FindAllString(name, -1)
	vendor = vendorOf(words)
	for _, maker := range gpuFamilies {
		for _, family := range maker.models {
			if i := slices.IndexFunc(words, func(w string) bool { return strings.EqualFold(w, family) }); i >= 0 && !isQuadro(words) {
				return family + gpuSuffix(family, words), maker.vendor
			}
		}
	}
	kept := make([]string, 0, len(words))
	for _, w := range words {
		if !noise[strings.ToLower(w)] && !gpuCount.MatchString(strings.ToLower(w)) {
			kept = append(kept, rtxWords(w)...)
		}
	}
	model = strings.Join(kept, "-")
	model = strings.Trim(model[:min(len(model), maxGPUName)], "-")
	if model == "" {
		return "unknown", vendor
	}
	if vendor == "" && slices.ContainsFunc(kept, func(w string) bool { return w == "RTX" || w == "GTX" || strings.EqualFold(w, "quadro") }) {
		vendor = "nvidia"
	}
	return model, vendor
}

func vendorOf(words []string) string {
	for _, w := range words {
		switch strings.ToLower(w) {
		case "nvidia", "geforce", "tesla", "quadro":
			return "nvidia"
		case "amd", "instinct", "radeon":
			return "amd"
		case "intel", "habana", "gaudi":
			return "intel"
		}
	}
	return ""
}

// isQuadro keeps "RTX A40..." and "Quadro P4..." names, which are other cards, from being taken for the family.
func isQuadro(words []string) bool {
	return slices.ContainsFunc(words, func(w string) bool {
		w = strings.ToLower(w)
		return w == "quadro" || strings.HasPrefix(w, "rtx") || strings.HasPrefix(w, "gtx")
	})
}

func gpuSuffix(family string, words []string) string {
	if family == "H100" && slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, "nvl") }) {
		return "-NVL"
	}
	for _, size := range gpuMemories[family] {
		for _, w := range words {
			if m := gpuSize.FindStringSubmatch(strings.ToLower(w)); m != nil && m[1] == strconv.Itoa(size) {
				return "-" + strconv.Itoa(size) + "GB"
			}
		}
	}
	return ""
}

// rtxWords parts `RTX4090` and `rtx6000ada` into their words.
func rtxWords(w string) []string {
	m := rtxModel.FindStringSubmatch(strings.ToLower(w))
	if m == nil {
		switch strings.ToLower(w) {
		case "rtx", "gtx", "pro":
			return []string{strings.ToUpper(w)}
		case "ada":
			return []string{"Ada"}
		}
		return []string{w}
	}
	words := []string{strings.ToUpper(m[1]), m[2]}
	switch m[3] {
	case "ti":
		words = append(words, "Ti")
	case "super":
		words = append(words, "Super")
	case "ada":
		words = append(words, "Ada")
	}
	return words
}
