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

const (
	pathV2   = "/openapi/v2"
	pathV3   = "/openapi/v3"
	prefixV3 = pathV3 + "/"
)

// ServeHTTP serves /openapi/v2, /openapi/v3 and the paths below it. As in Kubernetes, it ignores the
// method.
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
	if o, ok := snap.others[path]; ok {
		o.Document.ServeHTTP(w, r)
		return
	}
	e := snap.byPath[path]
	if e == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	s.serveDocument(w, r, e.doc, "v3", e.path)
}

// failed responds with an error. For a client that went away, logs and metrics record that.
func (s *Service) failed(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		err = status.Gone()
	}
	s.writeError(w, r, err)
}

// serveIndex writes the list of v3 documents.
func (s *Service) serveIndex(w http.ResponseWriter, r *http.Request, snap *snapshot) {
	list, err := snap.list(r.Context())
	if err != nil {
		s.failed(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // as everywhere, although it is JSON
	w.Header().Set("ETag", strconv.Quote(list.etag))
	w.Header().Set("Cache-Control", "no-cache, private")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(list.text))
}

// serveDocument serves a form of a document. at is the document's path below /openapi/v3/. It is
// empty for the v2 document, which ignores the hash parameter.
func (s *Service) serveDocument(w http.ResponseWriter, r *http.Request, d *document, version, at string) {
	h := w.Header()
	h.Set("Vary", "Accept, Accept-Encoding")
	protobuf, ok := acceptedForm(r.Header.Get("Accept"), version)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	c, err := d.content(r.Context(), &SchemaCache{}, protobuf)
	if err != nil {
		s.failed(w, r, err)
		return
	}
	if requested := r.URL.Query().Get("hash"); requested != "" && at != "" {
		if requested != c.etag {
			http.Redirect(w, r, hashedURL(at, c.etag), http.StatusMovedPermanently)
			return
		}
		// The URL identifies the content, so it can be cached forever.
		h.Set("Cache-Control", "public, immutable")
		h.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	h.Set("Content-Type", "application/json")
	if protobuf {
		h.Set("Content-Type", "application/com.github.proto-openapi.spec."+version+".v1.0+protobuf")
	}
	h.Set("ETag", strconv.Quote(c.etag))
	body := c.gzip
	if acceptsGzip(r.Header.Get("Accept-Encoding")) {
		h.Set("Content-Encoding", "gzip")
	} else {
		data, release, err := c.uncompressed()
		if err != nil {
			s.failed(w, r, err)
			return
		}
		defer release()
		body = data
	}
	http.ServeContent(w, r, "", c.built, bytes.NewReader(body))
}

// acceptedForm chooses between JSON and protobuf. The media type of protobuf has two spellings.
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

// byWeight returns the elements of an Accept header without parameters, best first.
func byWeight(header string) []string {
	type clause struct {
		what string
		q    float64
	}
	var clauses []clause
	for _, part := range strings.Split(header, ",") {
		subject, params, _ := strings.Cut(part, ";")
		c := clause{what: strings.ToLower(strings.TrimSpace(subject)), q: 1}
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
		out[i] = c.what
	}
	return out
}

func acceptsGzip(header string) bool {
	for _, e := range byWeight(header) {
		if e == "gzip" || e == "*" {
			return true
		}
	}
	return false
}

// index is the list of the v3 documents.
type index struct {
	text []byte
	etag string
}

// list returns the index, built once for all requests that wait for it. Its errors include those of
// shared.get.
func (snap *snapshot) list(ctx context.Context) (*index, error) {
	return snap.index.get(ctx, func(within context.Context) (*index, error) {
		data, err := snap.listed(within)
		if err != nil {
			return nil, err
		}
		return &index{data, hash(data)}, nil
	})
}

// listed returns the list of the v3 documents with their hashes. That builds all of them.
func (snap *snapshot) listed(ctx context.Context) ([]byte, error) {
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(goruntime.GOMAXPROCS(0)) // few goroutines wait for the concurrency limit
	contents := make([]*content, len(snap.entries))
	read := newReadings()
	for i, e := range snap.entries {
		r := read.of(e)
		making.Go(func() (err error) {
			contents[i], err = e.doc.content(ctx, r, false)
			return err
		})
	}
	if err := making.Wait(); err != nil {
		return nil, err
	}
	out := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for i, e := range snap.entries {
		out.Paths[e.path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: hashedURL(e.path, contents[i].etag)}
	}
	for at, o := range snap.others {
		out.Paths[at] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: hashedURL(at, o.Hash)}
	}
	return json.Marshal(out)
}

// hashedURL returns the URL of a document, with its hash if known. A document at a URL with a hash
// never changes.
func hashedURL(at, etag string) string {
	u := url.URL{Path: prefixV3 + at}
	if etag != "" {
		u.RawQuery = url.Values{"hash": {etag}}.Encode()
	}
	return u.String()
}
