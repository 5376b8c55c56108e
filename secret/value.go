package secret

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[secret]"

// Value holds a secret. However it is printed, logged or encoded, it shows nothing; only Reveal gives it out. The zero value is
// the empty secret.
type Value struct{ text *string }

// NewValue wraps a secret. The pointer keeps it out of reflective printing of a struct that holds a Value.
func NewValue(text string) Value { return Value{text: &text} }

// Reveal gives the secret itself. What comes out must go straight to where it is used.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

// String shows nothing.
func (Value) String() string { return redacted }

// GoString shows nothing.
func (Value) GoString() string { return redacted }

// Format shows nothing, whatever the verb.
func (Value) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue shows nothing.
func (Value) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON shows nothing.
func (Value) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText shows nothing.
func (Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }
