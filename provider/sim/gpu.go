package sim

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// NormalizeGPU turns a vendor's spelling of a GPU into the vocabulary of offers, which matches ^[A-Za-z0-9-]{1,32}$, and names its
// maker ("nvidia", "amd", "intel", "unknown"). A name has its memory in it only where the family is sold with several sizes;
// memoryGiB is that of one GPU, zero when not known. A family that we do not know passes through cleaned.
func NormalizeGPU(name string, memoryGiB float64) (model, vendor string) {
	words := strings.FieldsFunc(name, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	words = joinUnits(words)
	kept := []string{}
	vendor = "unknown"
	for _, word := range words {
		upper := strings.ToUpper(word)
		if maker := makers[upper]; maker != "" {
			vendor = maker
		}
		if noise[upper] || isMemory(upper) || isMultiple(upper) || isForm(upper) {
			continue
		}
		kept = append(kept, spelled(word))
	}
	if len(kept) == 0 {
		return "unknown", vendor
	}
	if vendor == "unknown" {
		vendor = makerOf(kept)
	}
	model = strings.Join(kept, "-")
	if sizes := manySizes[model]; sizes != nil {
		model += sizeOf(words, memoryGiB, sizes)
	}
	return strings.TrimRight(model[:min(len(model), 32)], "-"), vendor
}

// manySizes has the families that are sold with several sizes of memory, in GiB.
var manySizes = map[string][]int{"A100": {40, 80}, "V100": {16, 32}}

var makers = map[string]string{
	"NVIDIA": "nvidia", "GEFORCE": "nvidia", "TESLA": "nvidia", "QUADRO": "nvidia", "RTX": "nvidia", "GTX": "nvidia",
	"AMD": "amd", "INSTINCT": "amd", "RADEON": "amd", "INTEL": "intel", "GAUDI": "intel",
}

// noise has the words that do not tell one model from another.
var noise = map[string]bool{
	"NVIDIA": true, "GEFORCE": true, "TESLA": true, "AMD": true, "INSTINCT": true, "RADEON": true, "INTEL": true,
	"GPU": true, "GPUS": true, "TENSOR": true, "CORE": true, "BLACKWELL": true, "SERVER": true, "WORKSTATION": true, "EDITION": true,
	"GENERATION": true, "GB": true, "GIB": true,
}

var spellings = map[string]string{
	"RTX": "RTX", "GTX": "GTX", "PRO": "PRO", "ADA": "Ada", "QUADRO": "Quadro", "TI": "Ti", "SUPER": "SUPER", "NVL": "NVL", "GAUDI": "Gaudi",
}

func spelled(word string) string {
	if s := spellings[strings.ToUpper(word)]; s != "" {
		return s
	}
	if strings.ContainsFunc(word, unicode.IsDigit) {
		return strings.ToUpper(word)
	}
	return word
}

// joinUnits makes one word of a number and its unit ("80 GB"), and two of RTX and a number that were written as one.
func joinUnits(words []string) []string {
	joined := []string{}
	for _, word := range words {
		upper := strings.ToUpper(word)
		last := len(joined) - 1
		digits, glued := strings.CutPrefix(upper, "RTX")
		switch {
		case (upper == "GB" || upper == "GIB") && last >= 0 && isNumber(joined[last]):
			joined[last] += "GB"
		case glued && isNumber(digits):
			joined = append(joined, "RTX", digits)
		default:
			joined = append(joined, word)
		}
	}
	return joined
}

func isNumber(word string) bool {
	return word != "" && !strings.ContainsFunc(word, func(r rune) bool { return r < '0' || r > '9' })
}

func isMemory(upper string) bool {
	return isNumber(strings.TrimSuffix(upper, "GB")) && strings.HasSuffix(upper, "GB") ||
		isNumber(strings.TrimSuffix(upper, "GIB")) && strings.HasSuffix(upper, "GIB")
}

// isMultiple finds "8x" and "x8".
func isMultiple(upper string) bool {
	return isNumber(strings.TrimSuffix(upper, "X")) && strings.HasSuffix(upper, "X") || isNumber(strings.TrimPrefix(upper, "X")) && upper[0] == 'X'
}

// isForm finds how the GPU is mounted and which memory it has. NVL is not here: H100-NVL is another GPU than H100.
func isForm(upper string) bool {
	for _, form := range []string{"SXM", "PCIE", "HBM", "OAM", "GDDR"} {
		if strings.HasPrefix(upper, form) {
			return true
		}
	}
	return false
}

var families = map[string][]string{
	"nvidia": {"A10", "A10G", "A16", "A30", "A40", "A100", "B200", "B300", "GB200", "GH200", "H100", "H200", "L4", "L40", "L40S", "P4", "P100", "T4", "V100"},
	"amd":    {"MI210", "MI250", "MI250X", "MI300A", "MI300X", "MI325X", "MI350X", "MI355X"},
}

func makerOf(kept []string) string {
	for maker, names := range families {
		if slices.Contains(names, kept[0]) {
			return maker
		}
	}
	return "unknown"
}

// sizeOf takes the size from the name, else the nearest to what one GPU has, if that is near at all.
func sizeOf(words []string, memoryGiB float64, sizes []int) string {
	for _, size := range sizes {
		for _, word := range words {
			if upper := strings.ToUpper(word); upper == fmt.Sprintf("%dGB", size) || upper == fmt.Sprintf("%dGIB", size) {
				return fmt.Sprintf("-%dGB", size)
			}
		}
	}
	for _, size := range sizes {
		if memoryGiB > 0.9*float64(size) && memoryGiB < 1.1*float64(size) {
			return fmt.Sprintf("-%dGB", size)
		}
	}
	return ""
}
