package vendor_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"better/compute/provider"
	"better/compute/provider/vendor"
)

func TestPages(t *testing.T) {
	t.Parallel()
	v := vendor.New(vendor.Options{Name: "The vendor"})
	defer v.Close()
	upset := errors.New("upset")
	for name, c := range map[string]struct {
		next map[int]int // of each page
		want []int
		err  provider.Class
	}{
		"one":            {map[int]int{1: 0}, []int{1}, ""},
		"three":          {map[int]int{1: 2, 2: 3, 3: 0}, []int{1, 2, 3}, ""},
		"itself":         {map[int]int{1: 1}, nil, provider.InvalidResponse},
		"back":           {map[int]int{1: 2, 2: 1}, nil, provider.InvalidResponse},
		"below":          {map[int]int{1: -1}, nil, provider.InvalidResponse},
		"far beyond":     {map[int]int{1: 1 << 40}, nil, provider.InvalidResponse},
		"a failure":      {map[int]int{1: 2}, nil, provider.Unavailable},
		"one left out":   {map[int]int{1: 3, 3: 0}, []int{1, 3}, ""},
		"more than fits": {nil, nil, provider.InvalidResponse},
	} {
		asked := 0
		got, err := vendor.Pages(v, func(number int) ([]int, int, error) {
			asked++
			if c.next == nil {
				return []int{number}, number + 1, nil
			}
			next, there := c.next[number]
			if !there {
				return nil, 0, upset
			}
			return []int{number}, next, nil
		})
		if !slices.Equal(got, c.want) || c.err == "" && err != nil || c.err != "" && provider.ClassOf(err) != c.err || asked > 1000 {
			t.Errorf("%s: %v, %v after %d pages", name, got, err, asked)
		}
		cursors, err := vendor.Cursors(v, func(cursor string) ([]string, string, error) {
			number, _ := strconv.Atoi(cursor)
			number = max(number, 1)
			next, there := c.next[number]
			switch {
			case c.next == nil:
				return []string{cursor}, strconv.Itoa(number + 1), nil
			case !there:
				return nil, "", upset
			case next == 0:
				return []string{cursor}, "", nil
			}
			return []string{cursor}, strconv.Itoa(next), nil
		})
		if c.err == "" && (err != nil || len(cursors) != len(c.want)) || name == "more than fits" && provider.ClassOf(err) != provider.InvalidResponse {
			t.Errorf("%s, by cursors: %v, %v", name, cursors, err)
		}
		if name == "itself" || name == "back" {
			if provider.ClassOf(err) != provider.InvalidResponse {
				t.Errorf("%s, by cursors: %v, %v", name, cursors, err)
			}
		}
	}
}
