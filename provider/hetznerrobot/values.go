package hetznerrobot

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// text is one that Robot writes as such or as a number: ids, prices. What is neither is empty, which is not known.
type text string

// UnmarshalJSON never fails: one odd value is no reason to show nothing.
func (t *text) UnmarshalJSON(from []byte) error {
	var s string
	var n json.Number
	switch {
	case json.Unmarshal(from, &s) == nil && string(from) != "null":
		*t = text(s)
	case json.Unmarshal(from, &n) == nil && string(from) != "null":
		*t = text(n)
	default:
		*t = ""
	}
	return nil
}

// number is one that Robot writes as such or as a text. What it cannot read is 0, which is not known.
type number float64

// UnmarshalJSON never fails.
func (n *number) UnmarshalJSON(from []byte) error {
	*n = 0
	f, err := strconv.ParseFloat(strings.Trim(string(from), `"`), 64)
	if err == nil && f > 0 && f < math.MaxInt32 {
		*n = number(f)
	}
	return nil
}

var (
	_ json.Unmarshaler = (*text)(nil)
	_ json.Unmarshaler = (*number)(nil)
)
