package server

import (
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// words are the names of a schema. Where clients may not read it, an error repeats of them only what the document has itself: what is wrong with
// a guess would otherwise be answered by what is right.
type words map[string]bool

// wordsOf lists the names of types, fields, arguments and values. Those that GraphQL itself defines are nobody's secret.
func wordsOf(schema *ast.Schema) words {
	w := words{}
	for name, def := range schema.Types {
		if def.BuiltIn {
			continue
		}
		w[name] = true
		for _, f := range def.Fields {
			w[f.Name] = true
			for _, arg := range f.Arguments {
				w[arg.Name] = true
			}
		}
		for _, v := range def.EnumValues {
			w[v.Name] = true
		}
	}
	for name := range w {
		if strings.HasPrefix(name, "__") {
			delete(w, name)
		}
	}
	return w
}

// unsaid takes out of errors the schema's names that the document does not have.
func (w words) unsaid(document string, errs gqlerror.List) gqlerror.List {
	for _, err := range errs {
		err.Message = w.strip(document, err.Message)
	}
	return errs
}

// strip puts an ellipsis in place of each name. What is also a plain word is taken for a name where it stands in quotes.
func (w words) strip(document, message string) string {
	var out strings.Builder
	quoted := false
	for len(message) > 0 {
		n := wordLength(message)
		if n == 0 {
			quoted = quoted != (message[0] == '"')
			out.WriteByte(message[0])
			message = message[1:]
			continue
		}
		word := message[:n]
		message = message[n:]
		if w[word] && (quoted || !plain(word)) && !hasWord(document, word) {
			word = "…"
		}
		out.WriteString(word)
	}
	return out.String()
}

// plain reports whether a word could be of a sentence.
func plain(word string) bool {
	return !strings.Contains(word, "_") && strings.ToLower(word[1:]) == word[1:]
}

func hasWord(text, word string) bool {
	for {
		i := strings.Index(text, word)
		if i < 0 {
			return false
		}
		if (i == 0 || !isWordByte(text[i-1])) && wordLength(text[i:]) == len(word) {
			return true
		}
		text = text[i+1:]
	}
}

// wordLength is how many bytes of a word the text begins with.
func wordLength(text string) int {
	n := 0
	for n < len(text) && isWordByte(text[n]) {
		n++
	}
	return n
}

func isWordByte(c byte) bool {
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'
}
