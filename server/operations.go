package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	"github.com/99designs/gqlgen/graphql"

	"better/compute/internal/problem"
)

// operations is the allow-list of documents by the hex SHA-256 of their text; nil allows every document.
type operations map[string]string

func loadOperations(path string) (operations, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("persistedOperations: %w", err)
	}
	listed := operations{}
	if err := json.Unmarshal(data, &listed); err != nil {
		return nil, fmt.Errorf("persistedOperations: %s: %w", path, err)
	}
	if listed == nil { // the file holds null, which would allow every document
		return nil, fmt.Errorf("persistedOperations: %s: is not an object of documents by their SHA-256", path)
	}
	for sum, text := range listed {
		if sum != documentSum(text) {
			return nil, fmt.Errorf("persistedOperations: %s: the document under %q has another SHA-256", path, sum)
		}
	}
	return listed, nil
}

// admit refuses a document that is not on the list, and fills in the text of one that the request only names by
// `extensions.persistedQuery.sha256Hash`.
func (o operations) admit(params *graphql.RawParams) error {
	if o == nil {
		if params.Query == "" {
			return problem.New(problem.InvalidInput, "The request has no query.")
		}
		return nil
	}
	sum := documentSum(params.Query)
	if params.Query == "" {
		named, _ := params.Extensions["persistedQuery"].(map[string]any)
		sum, _ = named["sha256Hash"].(string)
	}
	text, ok := o[sum]
	if !ok {
		return problem.New(problem.InvalidInput, "This server executes only the operations on its list, and this is not one of them.").With("rule", "persisted_operations")
	}
	params.Query = text
	return nil
}

func documentSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
