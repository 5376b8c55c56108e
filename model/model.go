// Package model owns the types that every layer speaks: the rows that GraphQL types bind to, the enums, pages, and the
// generated inputs.
//
// It stands on the standard library alone and holds no rule of any noun. The invariant: a value marshals to the same JSON on
// REST and GraphQL, except that GraphQL spells enums in upper case.
package model

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// timeFormat is RFC 3339 in UTC with exactly three digits of a second.
const timeFormat = "2006-01-02T15:04:05.000Z"

// Time is an instant that marshals as RFC 3339 in UTC with milliseconds.
type Time struct{ time.Time }

// NewTime wraps t.
func NewTime(t time.Time) Time { return Time{t} }

// AppendJSON appends the quoted form.
func (t Time) AppendJSON(b []byte) []byte {
	b = append(b, '"')
	b = t.UTC().AppendFormat(b, timeFormat)
	return append(b, '"')
}

// MarshalJSON writes the quoted form.
func (t Time) MarshalJSON() ([]byte, error) { return t.AppendJSON(make([]byte, 0, 26)), nil }

// MarshalGQL writes the quoted form.
func (t Time) MarshalGQL(w io.Writer) { _, _ = w.Write(t.AppendJSON(make([]byte, 0, 26))) }

// UnmarshalGQL reads RFC 3339.
func (t *Time) UnmarshalGQL(v any) error {
	s, ok := v.(string)
	if !ok {
		return errors.New("must be a string in RFC 3339")
	}
	p, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return errors.New("must be a time in RFC 3339")
	}
	t.Time = p
	return nil
}

// Scan reads a timestamptz.
func (t *Time) Scan(v any) error {
	switch v := v.(type) {
	case time.Time:
		t.Time = v
		return nil
	case nil:
		t.Time = time.Time{}
		return nil
	}
	return fmt.Errorf("scanning %T as a time", v)
}

// Value gives the database a timestamptz.
func (t Time) Value() (driver.Value, error) { return t.Time, nil }

// JSON is the text of a JSON object, passed through as bytes.
type JSON []byte

// EmptyJSON is the object without members.
func EmptyJSON() JSON { return JSON(`{}`) }

// MarshalJSON gives the text; an empty value is {}.
func (j JSON) MarshalJSON() ([]byte, error) {
	if len(j) == 0 {
		return []byte(`{}`), nil
	}
	return j, nil
}

// UnmarshalJSON keeps the text.
func (j *JSON) UnmarshalJSON(b []byte) error {
	*j = bytes.Clone(b)
	return nil
}

// MarshalGQL writes the text.
func (j JSON) MarshalGQL(w io.Writer) {
	b, _ := j.MarshalJSON()
	_, _ = w.Write(b)
}

// UnmarshalGQL keeps whatever the GraphQL executor parsed as text. Whether it is an object is judged by the service, so
// that the caller hears of it together with everything else that is wrong.
func (j *JSON) UnmarshalGQL(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return errors.New("must be JSON")
	}
	*j = b
	return nil
}

// Scan reads a jsonb.
func (j *JSON) Scan(v any) error {
	switch v := v.(type) {
	case []byte:
		*j = bytes.Clone(v)
	case string:
		*j = JSON(v)
	case nil:
		*j = nil
	default:
		return fmt.Errorf("scanning %T as JSON", v)
	}
	return nil
}

// Value gives the database the text.
func (j JSON) Value() (driver.Value, error) {
	if len(j) == 0 {
		return "{}", nil
	}
	return string(j), nil
}

// Node is an object that can be read again by its id.
type Node interface{ IsNode() }

// PageInfo says where a page stands in its list.
type PageInfo struct {
	HasNextPage     bool    `json:"hasNextPage"`
	HasPreviousPage bool    `json:"hasPreviousPage"`
	StartCursor     *string `json:"startCursor"`
	EndCursor       *string `json:"endCursor"`
}

// Edge is an item in a page.
type Edge[T any] struct {
	Cursor string `json:"cursor"`
	Node   *T     `json:"node"`
}

// Connection is one page of a list.
type Connection[T any] struct {
	Edges    []*Edge[T] `json:"edges"`
	PageInfo *PageInfo  `json:"pageInfo"`
}

// Nodes are the items without their cursors.
func (c *Connection[T]) Nodes() []*T {
	nodes := make([]*T, len(c.Edges))
	for i, e := range c.Edges {
		nodes[i] = e.Node
	}
	return nodes
}

// NewConnection makes a page from up to first+1 items that were read after the cursor `after` (empty: from the start):
// the item past the page only tells that there is a next one.
func NewConnection[T any](items []*T, first int, after string, cursor func(*T) string) *Connection[T] {
	info := &PageInfo{HasNextPage: len(items) > first, HasPreviousPage: after != ""}
	items = items[:min(first, len(items))]
	c := &Connection[T]{Edges: make([]*Edge[T], len(items)), PageInfo: info}
	for i, item := range items {
		c.Edges[i] = &Edge[T]{Cursor: cursor(item), Node: item}
	}
	if n := len(c.Edges); n > 0 {
		info.StartCursor, info.EndCursor = &c.Edges[0].Cursor, &c.Edges[n-1].Cursor
	}
	return c
}
