package aggregation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/kube-openapi/pkg/handler3"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/openapi"
)

const (
	// openAPIUser is the user name in requests for OpenAPI documents.
	openAPIUser = "system:aggregator"
	// v2Interval is the age from which a v2 document is read again when a client requests OpenAPI.
	// v2Retry is the same if the server had no document or failed.
	v2Interval = time.Minute
	v2Retry    = 10 * time.Second
	// v2Timeout bounds the request for a v2 document. v2Wait bounds how long a client waits for it.
	v2Timeout = 15 * time.Second
	v2Wait    = 3 * time.Second
)

// specs holds the last known OpenAPI documents of a server.
type specs struct {
	v3 atomic.Pointer[v3Index] // nil until the first read

	mu       sync.Mutex  // leaf lock; protects the fields below
	v2       *v2Document // nil if there is none
	v2ReadAt time.Time
	// v2Read is closed when the running read of the v2 document is complete; nil if none is
	// running.
	v2Read chan struct{}
}

// v3Index is the entry of the group version in a server's index of v3 documents.
type v3Index struct {
	exists bool   // the server has a v3 document of the group version
	hash   string // of the document; empty if unknown
	tag    string // ETag of the index
}

// v2Document is a server's v2 document, reduced to the group version.
type v2Document struct {
	text []byte
	tag  string // ETag of the server's document
	hash string // SHA-256 of text
}

// readV3Index reads whether the server has a v3 document, and its hash. changed reports whether
// either has changed.
func (r *remote) readV3Index(ctx context.Context) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	before := r.specs.v3.Load()
	if before == nil {
		before = &v3Index{}
	}
	resp, body, err := r.get(ctx, "/openapi/v3", documentRequest{etag: before.tag, user: openAPIUser})
	if err != nil || resp.StatusCode == http.StatusNotModified {
		return false
	}
	next := &v3Index{}
	var all handler3.OpenAPIV3Discovery
	if resp.StatusCode == http.StatusOK && r.aggregator.decode("/openapi/v3", body, maxValues, unmarshalInto(&all)) == nil {
		var entry handler3.OpenAPIV3DiscoveryGroupVersion
		entry, next.exists = all.Paths[strings.TrimPrefix(r.path(), "/")]
		if next.exists {
			next.tag = resp.Header.Get("ETag")
			if u, err := url.Parse(entry.ServerRelativeURL); err == nil {
				next.hash = u.Query().Get("hash")
			}
		}
	}
	r.specs.v3.Store(next)
	return next.exists != before.exists || next.hash != before.hash
}

// RemoteGroupVersions returns the group versions for which extension servers have v3 documents.
func (a *Aggregator) RemoteGroupVersions() (out []openapi.RemoteGroupVersion) {
	for gv, r := range a.currentDirectory().remotes {
		if v3 := r.specs.v3.Load(); v3 != nil && v3.exists && !a.Local(gv) {
			out = append(out, openapi.RemoteGroupVersion{GroupVersion: gv, Hash: v3.hash, Document: r})
		}
	}
	return out
}

// Swaggers returns the v2 documents of the available servers, in order of priority. It starts
// reading missing and outdated documents. It waits only for missing ones, at most for v2Wait.
func (a *Aggregator) Swaggers(ctx context.Context) (out []openapi.RemoteV2Document) {
	var all []*remote
	for gv, r := range a.currentDirectory().remotes {
		if !a.Local(gv) && r.available() && r.proxyErr == nil {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(x, y *remote) int {
		if d := y.spec.GroupPriorityMinimum - x.spec.GroupPriorityMinimum; d != 0 {
			return int(d)
		}
		return strings.Compare(x.name, y.name)
	})
	ctx, cancel := context.WithTimeout(ctx, v2Wait)
	defer cancel()
	reads := make([]<-chan struct{}, len(all))
	for i, r := range all {
		reads[i] = r.startV2Read()
	}
	for i, r := range all {
		if reads[i] != nil {
			select {
			case <-reads[i]:
			case <-ctx.Done():
			}
		}
		r.specs.mu.Lock()
		if s := r.specs.v2; s != nil {
			out = append(out, openapi.RemoteV2Document{GroupVersion: r.groupVersion(), Tag: s.hash, Text: s.text})
		}
		r.specs.mu.Unlock()
	}
	return out
}

// startV2Read starts reading the v2 document in the background if it is missing or outdated. If
// there is no document yet, it returns a channel that is closed when the running read is complete,
// otherwise nil.
func (r *remote) startV2Read() <-chan struct{} {
	specs := &r.specs
	specs.mu.Lock()
	defer specs.mu.Unlock()
	interval := v2Interval
	if specs.v2 == nil {
		interval = v2Retry
	}
	isDue := r.aggregator.Now().Sub(specs.v2ReadAt) >= interval
	if specs.v2Read == nil && isDue && r.workCtx.Err() == nil {
		done := make(chan struct{})
		specs.v2Read = done
		r.aggregator.background.Go(func() {
			defer close(done)
			r.updateV2()
		})
	}
	if specs.v2 != nil {
		return nil
	}
	return specs.v2Read
}

// updateV2 reads the v2 document and stores it in r.specs.
func (r *remote) updateV2() {
	specs := &r.specs
	specs.mu.Lock()
	before := specs.v2
	specs.mu.Unlock()
	next, err := r.fetchV2(before)
	if err != nil {
		r.aggregator.Logger.Debug("the OpenAPI document of an extension server could not be read", "apiservice", r.name, "error", err)
	}
	specs.mu.Lock()
	defer specs.mu.Unlock()
	specs.v2 = next
	specs.v2ReadAt = r.aggregator.Now()
	specs.v2Read = nil
}

// fetchV2 requests the v2 document. It returns before if the document has not changed or the
// request fails, and nil if the server has no document or an invalid one.
func (r *remote) fetchV2(before *v2Document) (*v2Document, error) {
	ctx, cancel := context.WithTimeout(r.workCtx, v2Timeout)
	defer cancel()
	tag := ""
	if before != nil {
		tag = before.tag
	}
	resp, body, err := r.get(ctx, "/openapi/v2", documentRequest{
		accept: api.MediaJSON,
		etag:   tag,
		user:   openAPIUser,
		limit:  MaxOpenAPI,
	})
	switch {
	case err != nil:
		return before, err
	case resp.StatusCode == http.StatusNotModified:
		return before, nil
	case resp.StatusCode == http.StatusNotFound: // the server has no document
		return nil, nil
	case resp.StatusCode != http.StatusOK:
		return before, fmt.Errorf("/openapi/v2: %s", resp.Status)
	}
	var part []byte
	err = r.aggregator.decode("/openapi/v2", body, maxOpenAPIValues, func(data []byte) (err error) {
		part, err = openapi.ExtractGroupVersion(data, r.groupVersion())
		return err
	})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(part)
	return &v2Document{text: part, tag: resp.Header.Get("ETag"), hash: hex.EncodeToString(sum[:])}, nil
}
