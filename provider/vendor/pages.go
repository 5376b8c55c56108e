package vendor

import "better/compute/provider"

// Bounds of a list. No account has more; an answer that goes on has lost its way.
const (
	maxPages = 1000
	maxItems = 100_000
)

// Pages reads the pages of a list that are numbered from 1. Page gives one, and the number of the next or 0. The error is page's own, or
// InvalidResponse for a list that runs in a circle or does not end.
func Pages[T any](v *Vendor, page func(number int) (items []T, next int, err error)) ([]T, error) {
	all := []T{}
	for number := 1; ; {
		items, next, err := page(number)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if next == 0 {
			return all, nil
		}
		if next <= number || next > maxPages || len(all) > maxItems {
			return nil, v.Errorf(provider.InvalidResponse)
		}
		number = next
	}
}

// Cursors is Pages for a list whose pages name the next by a text, which is empty for the first and after the last.
func Cursors[T any](v *Vendor, page func(cursor string) (items []T, next string, err error)) ([]T, error) {
	all := []T{}
	seen := map[string]bool{}
	for cursor := ""; ; {
		items, next, err := page(cursor)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if next == "" {
			return all, nil
		}
		if seen[next] || len(seen) == maxPages || len(all) > maxItems {
			return nil, v.Errorf(provider.InvalidResponse)
		}
		seen[next], cursor = true, next
	}
}
