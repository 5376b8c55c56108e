package strictjson

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		name, in string
		ok       bool
	}{
		{"object", `{"a":[1,"x",null,true,{"b":1e3}]}`, true},
		{"deepest", deep(MaxDepth), true},
		{"deepest, with something inside", strings.Replace(deep(MaxDepth), "[]", "[1]", 1), true},
		{"surrogate pair", `"\ud83d\ude00"`, true},
		{"escaped backslash before u", `"\\ud800"`, true},
		{"too deep", deep(MaxDepth + 1), false},
		{"duplicate key", `{"a":1,"a":2}`, false},
		{"duplicate key by escape", `{"a":1,"\u0061":2}`, false},
		{"nested duplicate key", `{"x":[{"a":1,"a":2}]}`, false},
		{"trailing data", `{} {}`, false},
		{"trailing text", `{}x`, false},
		{"NUL by escape", `{"a":"\u0000"}`, false},
		{"NUL in a key", `{"\u0000":1}`, false},
		{"raw NUL", "\"a\x00\"", false},
		{"invalid UTF-8", "\"a\xff\"", false},
		{"high surrogate alone", `"\ud83d"`, false},
		{"low surrogate alone", `"\ude00"`, false},
		{"high surrogate twice", `"\ud83d\ud83d"`, false},
		{"huge number", `1e999999`, false},
		{"long number", strings.Repeat("1", 65), false},
		{"empty", ``, false},
		{"cut short", `{"a":`, false},
		{"comment", `{} // x`, false},
		{"byte order mark", "\ufeff{}", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(c.in))
			if (err == nil) != c.ok {
				t.Errorf("Parse(%q) = %v", c.in, err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"a":[1,"\ud83d\ude00",{"b":null}]}`))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Parse(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("what was parsed cannot be written: %v", err)
		}
		if _, err := Parse(again); err != nil {
			t.Fatalf("what was written cannot be parsed: %v", err)
		}
	})
}

func TestParseBoundsTheValues(t *testing.T) {
	t.Parallel()
	list := func(n int) []byte { return []byte("[" + strings.TrimSuffix(strings.Repeat("0,", n), ",") + "]") }
	if _, err := Parse(list(MaxValues - 1)); err != nil { // the list is one too
		t.Errorf("%d values: %v", MaxValues, err)
	}
	if _, err := Parse(list(MaxValues)); err == nil || !strings.Contains(err.Error(), "5000 values") {
		t.Errorf("one more: %v", err)
	}
}

func TestMember(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"b":1,"a": "x"}`: `"x"}`, `{"a" :7}`: `7}`, `{"b":{"a":1},"c":["a",{"a":2}]}`: ``, `{"b":"a","a":"\"","c":0}`: `"\"","c":0}`,
		`["a",1]`: ``, `{"a"`: ``, `{"a":`: ``, `{"a`: ``, `{"x\"a":1,"\\":2,"a":3}`: `3}`, ``: ``,
		`{"\u0061":4}`: `4}`, `{"\u0041":4,"\u00":5,"\`: ``, `{"\u0061b":4}`: ``,
	} {
		if got := string(Member([]byte(in), "a")); got != want {
			t.Errorf("%s: %q", in, got)
		}
	}
}
