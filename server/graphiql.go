package server

import (
	"embed"
	"io/fs"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
)

// The explorer as its authors publish it, with the two libraries it needs and graphql-ws for subscriptions; LICENSES.txt names the
// versions. Everything comes from this binary, so the page works without the internet and nobody else's server can change it.
//
//go:embed graphiql
var graphiqlFiles embed.FS

//go:embed front/index.html
var frontPage []byte

// pagePolicy allows a page what it ships itself, and to talk to this server only. GraphiQL's editor writes style elements.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self' data:; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

func mountGraphiQL(r chi.Router) {
	files, err := fs.Sub(graphiqlFiles, "graphiql")
	if err != nil {
		panic(err) // the folder is in the binary
	}
	serve := http.StripPrefix("/graphiql", http.FileServerFS(files))
	r.Get("/graphiql", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/graphiql/", http.StatusFound)
	})
	r.Get("/graphiql/*", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", pagePolicy)
		if strings.HasSuffix(r.URL.Path, ".min.js") || strings.HasSuffix(r.URL.Path, ".min.css") {
			w.Header().Set("Cache-Control", "max-age=3600")
		}
		serve.ServeHTTP(w, r)
	})
}

func serveFrontPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Security-Policy", pagePolicy)
	w.Header().Set("Content-Type", "text/html"+utf8Suffix)
	_, _ = w.Write(frontPage) // the client is gone
}
