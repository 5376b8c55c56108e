package provider

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"better/compute/model"
)

const maxOfferID = 128

// OfferID makes the id of a machine type in a region: `type:region`, as long as that has only the characters of an id. Otherwise it
// cleans both and adds a hash of what they were. Different pairs never get the same id.
func OfferID(machineType, region string) string {
	plain := machineType
	if region != "" {
		plain += ":" + region
	}
	if machineType != "" && len(plain) <= maxOfferID && plainID(machineType) && plainID(region) {
		return plain // has at most one colon, and what comes below has two
	}
	// The length keeps apart what only the place of the border tells apart.
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(machineType), machineType, region))
	return cleanID(machineType, 48) + ":" + cleanID(region, 40) + ":" + hex.EncodeToString(sum[:16])
}

// SplitOfferID gives the pair that OfferID made the id of; false when the id does not tell, and only a list of the offers can.
func SplitOfferID(id string) (machineType, region string, ok bool) {
	machineType, region, _ = strings.Cut(id, ":")
	return machineType, region, machineType != "" && plainID(machineType) && plainID(region)
}

func plainID(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return !isIDChar(r) }) < 0
}

func cleanID(s string, max int) string {
	s = strings.Map(func(r rune) rune {
		if isIDChar(r) {
			return r
		}
		return '-'
	}, s)
	return s[:min(len(s), max)]
}

func isIDChar(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-'
}

// NewPrice takes the figures that a provider states, each a decimal number or empty, without tax; nil when none of them can be understood.
// Zeros at the end and digits that no bank counts go.
func NewPrice(currencyCode, hourly, monthly string) *model.Price {
	p := &model.Price{Currency: currencyCode, Hourly: figure(hourly), Monthly: figure(monthly)}
	if !currency.MatchString(currencyCode) || p.Hourly == nil && p.Monthly == nil {
		return nil
	}
	return p
}

const priceDigits = 6 // behind the point

func figure(s string) *string {
	r, ok := decimal(&s)
	if !ok {
		return nil
	}
	text := strings.TrimRight(r.FloatString(priceDigits), "0")
	text = strings.TrimSuffix(text, ".")
	return &text
}

// FilterOffers keeps the offers for which every condition of the query holds, in their order. A value that is not known meets no
// minimum above 0. A nil query keeps all.
func FilterOffers(offers []*model.Offer, query *model.OfferQuery) []*model.Offer {
	if query == nil {
		return offers
	}
	kept := make([]*model.Offer, 0, len(offers))
	for _, o := range offers {
		if matches(o, query) {
			kept = append(kept, o)
		}
	}
	return kept
}

func matches(o *model.Offer, q *model.OfferQuery) bool {
	if q.Kind != nil && o.Kind != *q.Kind {
		return false
	}
	if q.Region != nil && foldWords(o.Region) != foldWords(*q.Region) {
		return false
	}
	if q.MinVcpu != nil && *q.MinVcpu > 0 && (o.VCPU == nil || *o.VCPU < *q.MinVcpu) {
		return false
	}
	if q.MinMemoryGiB != nil && *q.MinMemoryGiB > 0 && (o.MemoryGiB == nil || !(*o.MemoryGiB >= float64(*q.MinMemoryGiB))) {
		return false
	}
	return matchesGPU(o.GPU, q)
}

// matchesGPU takes a model without a number for at least one.
func matchesGPU(gpu *model.GPU, q *model.OfferQuery) bool {
	atLeast := 0
	if q.GpuModel != nil {
		if gpu == nil || !matchesGPUModel(gpu.Model, *q.GpuModel) {
			return false
		}
		atLeast = 1
	}
	if q.MinGpus != nil {
		atLeast = *q.MinGpus
	}
	return atLeast <= 0 || gpu != nil && gpu.Count >= atLeast
}

// matchesGPUModel reports whether the query is the whole name, or its beginning up to the end of a word.
func matchesGPUModel(name, query string) bool {
	query = foldWords(query)
	if query == "" {
		return false
	}
	var beginning strings.Builder
	for _, word := range strings.FieldsFunc(name, isSeparator) {
		beginning.WriteString(strings.ToLower(word))
		if beginning.String() == query {
			return true
		}
	}
	return false
}

// foldWords drops case, spaces, `_`, `.` and `-`.
func foldWords(s string) string {
	return strings.ToLower(strings.Join(strings.FieldsFunc(s, isSeparator), ""))
}

func isSeparator(r rune) bool { return r == ' ' || r == '_' || r == '.' || r == '-' }

// SortOffers sorts in place: those with an hourly price by that price, then those with only a monthly one by that, then those without a
// price; equal ones by id. Hourly and monthly prices are never compared with each other, and figures of different currencies are
// compared as numbers.
func SortOffers(offers []*model.Offer) {
	type ranked struct {
		offer *model.Offer
		group int
		price *big.Rat
	}
	order := make([]ranked, len(offers))
	for i, o := range offers {
		group, price := rank(o.Price)
		order[i] = ranked{o, group, price}
	}
	slices.SortFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.group, b.group), a.price.Cmp(b.price), strings.Compare(a.offer.ID, b.offer.ID))
	})
	for i, r := range order {
		offers[i] = r.offer
	}
}

func rank(p *model.Price) (group int, price *big.Rat) {
	if p != nil {
		if r, ok := decimal(p.Hourly); ok {
			return 0, r
		}
		if r, ok := decimal(p.Monthly); ok {
			return 1, r
		}
	}
	return 2, new(big.Rat)
}

// decimal reads a figure exactly. big.Rat by itself would take fractions, exponents and other bases, so the form is judged first.
func decimal(s *string) (*big.Rat, bool) {
	if s == nil || !decimalForm.MatchString(*s) {
		return nil, false
	}
	return new(big.Rat).SetString(*s)
}
