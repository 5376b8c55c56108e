package cursor_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/internal/cursor"
	"better/compute/internal/leaktest"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
)

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

func list(t testing.TB, s *cursor.Sealer, query, tenantID string, filter ...string) cursor.List {
	t.Helper()
	l, err := s.List(t.Context(), query, tenantID, filter...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

type place struct {
	At   int64
	Name string
}

func TestCursorsGoOnAtEveryReplica(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const replicas = 8
	made := make([]string, replicas)
	var wg sync.WaitGroup
	for i := range replicas {
		wg.Go(func() {
			l, err := cursor.NewSealer(db).List(t.Context(), "things", "t1", "a", "")
			if err != nil {
				t.Error(err)
				return
			}
			made[i] = cursor.Encode(l, func(p *place) place { return *p })(&place{7, "x"})
		})
	}
	wg.Wait()
	read := cursor.Decode[place](list(t, cursor.NewSealer(db), "things", "t1", "a", ""))
	for _, c := range made {
		if got, ok := read(c); !ok || got != (place{7, "x"}) || c != made[0] {
			t.Errorf("%s reads as %v, %v", c, got, ok)
		}
	}
	other := list(t, cursor.NewSealer(pgtest.New(t)), "things", "t1", "a", "")
	if _, ok := other.Open(made[0]); ok {
		t.Error("another deployment takes the cursor")
	}
}

func TestCursorIsOfOneListAlone(t *testing.T) {
	t.Parallel()
	s := cursor.NewSealer(pgtest.New(t))
	lists := [][]string{
		{"things", "t1"},
		{"thing", "st1"},
		{"", "thingst1"},
		{"things", "t2"},
		{"other", "t1"},
		{"things", "t1", ""},
		{"things", "t1", "", ""},
		{"things", "t1", "a"},
		{"things", "t1", "a", ""},
		{"things", "t1", "", "a"},
		{"things", "t1a"},
		{"things", "t1", "a\x00"},
		{"things\x02t1", ""},
		{"things", "t1", cursor.Optional(new("a"))},
		{"things", "t1", cursor.Optional(new(""))},
		{"things", "t1", strings.Repeat("a", 300)},
	}
	places := []string{"", "a", "\x00", "\x02t1", "place"}
	for i, from := range lists {
		for _, p := range places {
			sealed := list(t, s, from[0], from[1], from[2:]...).Seal([]byte(p))
			for j, to := range lists {
				got, ok := list(t, s, to[0], to[1], to[2:]...).Open(sealed)
				if ok != (i == j) || ok && string(got) != p {
					t.Errorf("a cursor of %q opens as one of %q: %v, %q", from, to, ok, got)
				}
			}
		}
	}
}

// 100,000 cursors that were altered, cut, joined, or never were any.
func TestMutatedCursorsAreRefused(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	rnd := rand.New(rand.NewPCG(seed, 0))
	l := list(t, cursor.NewSealer(pgtest.New(t)), "things", "t1")
	const cursors = 100_000
	accepted := 0
	for range cursors {
		good := l.Seal(randomBytes(rnd, rnd.IntN(60)))
		bad := mutate(rnd, good, l.Seal(randomBytes(rnd, rnd.IntN(60))))
		if bad == good {
			continue
		}
		if _, ok := l.Open(bad); ok {
			accepted++
			t.Errorf("%q was made of %q and is accepted", bad, good)
		}
	}
	verdict := "PASS"
	if accepted > 0 {
		verdict = "FAIL"
	}
	fmt.Printf("cursors mutated=%d accepted=%d %s seed=%d\n", cursors, accepted, verdict, seed)
}

func randomBytes(rnd *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.IntN(256))
	}
	return b
}

// mutate alters a cursor; other is a different one of the same list.
func mutate(rnd *rand.Rand, good, other string) string {
	at := rnd.IntN(len(good))
	raw, _ := base64.RawURLEncoding.DecodeString(good)
	switch rnd.IntN(9) {
	case 0: // one character
		const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=.\n\r \x00"
		return good[:at] + string(alphabet[rnd.IntN(len(alphabet))]) + good[at+1:]
	case 1: // one bit
		raw[rnd.IntN(len(raw))] ^= 1 << rnd.IntN(8)
		return base64.RawURLEncoding.EncodeToString(raw)
	case 2: // cut at the end, or at the beginning
		return good[:at]
	case 3:
		return good[at+1:]
	case 4: // longer
		return base64.RawURLEncoding.EncodeToString(append(raw, randomBytes(rnd, 1+rnd.IntN(4))...))
	case 5: // the same bytes, written otherwise
		return good[:at] + []string{"\n", "\r\n", "=", " "}[rnd.IntN(4)] + good[at:]
	case 6: // the tag of one and the place of another
		foreign, _ := base64.RawURLEncoding.DecodeString(other)
		if bytes.Equal(raw[16:], foreign[16:]) {
			return "-"
		}
		return base64.RawURLEncoding.EncodeToString(append(raw[:16:16], foreign[16:]...))
	case 7: // no tag
		return base64.RawURLEncoding.EncodeToString(raw[16:])
	default:
		return base64.RawURLEncoding.EncodeToString(randomBytes(rnd, rnd.IntN(80)))
	}
}

func FuzzOpen(f *testing.F) {
	l := list(f, cursor.NewSealer(pgtest.New(f)), "things", "t1")
	good := l.Seal([]byte("place"))
	for _, seed := range []string{good, good + "A", good[:20], "", "=", "\n" + good} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, ok := l.Open(text); ok != (text == good) {
			t.Errorf("%q: %v", text, ok)
		}
	})
}

func TestKeyIsReadOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := cursor.NewSealer(db)
	list(t, s, "things", "t1")
	count := pgtest.CountQueries(db)
	l := list(t, s, "things", "t2")
	l.Open(l.Seal(nil))
	if n := count(); n != 0 {
		t.Errorf("a cursor costs %d statements", n)
	}
}

func TestNoCursorsWithoutTheKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner, s := pgtest.Owner(t, db), cursor.NewSealer(db)
	exec := func(statement string) {
		t.Helper()
		if _, err := owner.NewRaw(statement).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	exec("ALTER TABLE server_keys RENAME TO away")
	if _, err := s.List(t.Context(), "things", "t1"); !problem.Is(err, problem.Unavailable) {
		t.Errorf("List gives %v", err)
	}
	exec("ALTER TABLE away RENAME TO server_keys")
	list(t, s, "things", "t1")
}
