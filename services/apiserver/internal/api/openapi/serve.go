package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	goruntime "runtime"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/kube-openapi/pkg/handler3"

	"binnacle/services/apiserver/internal/status"
)

// Paths of the documents.
const (
	pathV2   = "/openapi/v2"
	pathV3   = "/openapi/v3"
	prefixV3 = pathV3 + "/"
)

// ServeHTTP serves /openapi/v2, /openapi/v3 and the paths below it. As in Kubernetes, it ignores
// the method.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	snap := s.current.Load()
	switch r.URL.Path {
	case pathV2:
		s.serveDocument(w, r, s.mergedV2(r.Context(), snap), "v2", "")
		return
	case pathV3:
		s.serveIndex(w, r, snap)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, prefixV3)
	if !ok {
		http.NotFound(w, r)
		return
	}
	if remote, ok := snap.remotes[path]; ok {
		remote.Document.ServeHTTP(w, r)
		return
	}
	entry := snap.byPath[path]
	if entry == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	s.serveDocument(w, r, entry.doc, "v3", entry.path)
}

// respondError responds with an error. If the client has disconnected, it replaces the error, so
// that logs and metrics show that.
func (s *Service) respondError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		err = status.Gone()
	}
	s.writeError(w, r, err)
}

// serveIndex responds with the list of v3 documents.
func (s *Service) serveIndex(w http.ResponseWriter, r *http.Request, snap *snapshot) {
	list, err := snap.v3Index(r.Context())
	if err != nil {
		s.respondError(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // as in Kubernetes, although it is JSON
	w.Header().Set("ETag", strconv.Quote(list.etag))
	w.Header().Set("Cache-Control", "no-cache, private")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(list.text))
}

// serveDocument responds with a document in the form that the client accepts. version is "v2" or
// "v3". path is the document's path below /openapi/v3/. It is empty for the v2 document, which
// ignores the query parameter hash.
func (s *Service) serveDocument(w http.ResponseWriter, r *http.Request, d *document, version, path string) {
	header := w.Header()
	header.Set("Vary", "Accept, Accept-Encoding")
	protobuf, ok := acceptedForm(r.Header.Get("Accept"), version)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	content, err := d.content(r.Context(), &SchemaCache{}, protobuf)
	if err != nil {
		s.respondError(w, r, err)
		return
	}
	if requested := r.URL.Query().Get("hash"); requested != "" && path != "" {
		if requested != content.etag {
			http.Redirect(w, r, hashedURL(path, content.etag), http.StatusMovedPermanently)
			return
		}
		// The URL identifies the content, so it can be cached forever.
		header.Set("Cache-Control", "public, immutable")
		header.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	header.Set("Content-Type", "application/json")
	if protobuf {
		header.Set("Content-Type", "application/com.github.proto-openapi.spec."+version+".v1.0+protobuf")
	}
	header.Set("ETag", strconv.Quote(content.etag))
	body := content.gzip
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		header.Set("Content-Encoding", "gzip")
	} else {
		data, release, err := content.uncompressed()
		if err != nil {
			s.respondError(w, r, err)
			return
		}
		defer release()
		body = data
	}
	http.ServeContent(w, r, "", content.built, bytes.NewReader(body))
}

// acceptedForm returns whether the client prefers protobuf to JSON, or ok=false if it accepts
// neither. version is "v2" or "v3". The media type of protobuf has two spellings, with "@v1.0" and
// ".v1.0".
func acceptedForm(accept, version string) (protobuf, ok bool) {
	if strings.TrimSpace(accept) == "" {
		return false, true
	}
	const prefix = "application/com.github.proto-openapi.spec."
	for _, media := range byWeight(accept) {
		switch media {
		case "*/*", "application/*", "application/json":
			return false, true
		case prefix + version + "@v1.0+protobuf", prefix + version + ".v1.0+protobuf":
			return true, true
		}
	}
	return false, false
}

// byWeight returns the elements of an Accept or Accept-Encoding header in the order of their
// weights q, highest first, without parameters: "a;q=0.5, b" -> b, a. It omits elements with q=0.
func byWeight(header string) []string {
	type clause struct {
		value string
		q     float64
	}
	var clauses []clause
	for _, part := range strings.Split(header, ",") {
		value, params, _ := strings.Cut(part, ";")
		c := clause{value: strings.ToLower(strings.TrimSpace(value)), q: 1}
		for _, p := range strings.Split(params, ";") {
			if k, v, ok := strings.Cut(strings.TrimSpace(p), "="); ok && k == "q" {
				if q, err := strconv.ParseFloat(v, 64); err == nil {
					c.q = q
				}
			}
		}
		if c.q > 0 {
			clauses = append(clauses, c)
		}
	}
	sort.SliceStable(clauses, func(i, j int) bool { return clauses[i].q > clauses[j].q })
	out := make([]string, len(clauses))
	for i, c := range clauses {
		out[i] = c.value
	}
	return out
}

// acceptsGzip reports whether an Accept-Encoding header permits gzip.
func acceptsGzip(header string) bool {
	for _, e := range byWeight(header) {
		if e == "gzip" || e == "*" {
			return true
		}
	}
	return false
}

// index is the list of the v3 documents, as JSON.
type index struct {
	text []byte
	etag string
}

// v3Index returns the index. The first call builds it. It returns the errors of the build and of
// shared.get.
func (snap *snapshot) v3Index(ctx context.Context) (*index, error) {
	return snap.index.get(ctx, func(buildCtx context.Context) (*index, error) {
		data, err := snap.buildIndex(buildCtx)
		if err != nil {
			return nil, err
		}
		return &index{text: data, etag: hash(data)}, nil
	})
}

// buildIndex returns the JSON of the index. It contains the hashes of all v3 documents, so it
// builds all of them.
func (snap *snapshot) buildIndex(ctx context.Context) ([]byte, error) {
	builds, ctx := errgroup.WithContext(ctx)
	builds.SetLimit(goruntime.GOMAXPROCS(0)) // more would only wait for a slot
	contents := make([]*content, len(snap.entries))
	caches := newGroupCaches()
	for i, e := range snap.entries {
		cache := caches.cacheFor(e)
		builds.Go(func() (err error) {
			contents[i], err = e.doc.content(ctx, cache, false)
			return err
		})
	}
	if err := builds.Wait(); err != nil {
		return nil, err
	}
	out := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for i, e := range snap.entries {
		out.Paths[e.path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: hashedURL(e.path, contents[i].etag)}
	}
	for path, remote := range snap.remotes {
		out.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: hashedURL(path, remote.Hash)}
	}
	return json.Marshal(out)
}

// hashedURL returns the URL of a v3 document with its hash, if known. The document at such a URL
// never changes. path is the document's path below /openapi/v3/.
func hashedURL(path, etag string) string {
	u := url.URL{Path: prefixV3 + path}
	if etag != "" {
		u.RawQuery = url.Values{"hash": {etag}}.Encode()
	}
	return u.String()
}
