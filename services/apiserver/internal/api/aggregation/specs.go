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
	// openAPIUser is the user of requests for OpenAPI documents.
	openAPIUser = "system:aggregator"
	// A v2 document is requested again on demand after specInterval, or after specRetry if there
	// was none.
	specInterval = time.Minute
	specRetry    = 10 * time.Second
	// specTimeout bounds the request, specWait how long a client waits for it.
	specTimeout = 15 * time.Second
	specWait    = 3 * time.Second
)

// specs holds the known OpenAPI documents of a server.
type specs struct {
	v3 atomic.Pointer[v3Index]

	mu          sync.Mutex // leaf lock
	v2          *swagger
	requestedAt time.Time
	flight      chan struct{} // closed when the response has arrived
}

// v3Index states whether a server has a v3 document of the group version, and its hash.
type v3Index struct {
	exists    bool
	hash, tag string
}

// swagger is a server's v2 document, reduced to the group version.
type swagger struct {
	text []byte
	// tag is the server's ETag. hash is the hash of the text.
	tag, hash string
}

// findV3 checks whether the server has a v3 document. changed reports whether that or its hash
// changed.
func (r *remote) findV3(ctx context.Context) (changed bool) {
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
		var at handler3.OpenAPIV3DiscoveryGroupVersion
		at, next.exists = all.Paths[strings.TrimPrefix(r.path(), "/")]
		if next.exists {
			next.tag = resp.Header.Get("ETag")
			if u, err := url.Parse(at.ServerRelativeURL); err == nil {
				next.hash = u.Query().Get("hash")
			}
		}
	}
	r.specs.v3.Store(next)
	return next.exists != before.exists || next.hash != before.hash
}

// RemoteGroupVersions returns the group versions whose servers have v3 documents.
func (a *Aggregator) RemoteGroupVersions() (out []openapi.RemoteGroupVersion) {
	for gv, r := range a.directory().remotes {
		if v3 := r.specs.v3.Load(); v3 != nil && v3.exists && !a.Local(gv) {
			out = append(out, openapi.RemoteGroupVersion{GroupVersion: gv, Hash: v3.hash, Document: r})
		}
	}
	return out
}

// Swaggers returns the v2 documents of the available servers. It requests missing and outdated
// ones. It waits at most specWait for missing ones.
func (a *Aggregator) Swaggers(ctx context.Context) (out []openapi.RemoteV2Document) {
	var all []*remote
	for gv, r := range a.directory().remotes {
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
	ctx, cancel := context.WithTimeout(ctx, specWait)
	defer cancel()
	flights := make([]<-chan struct{}, len(all))
	for i, r := range all {
		flights[i] = r.readV2()
	}
	for i, r := range all {
		if flights[i] != nil {
			select {
			case <-flights[i]:
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

// readV2 requests the v2 document if it is due. If there is no document yet, it returns a channel
// that is closed when the response has arrived.
func (r *remote) readV2() <-chan struct{} {
	s := &r.specs
	s.mu.Lock()
	defer s.mu.Unlock()
	every := specInterval
	if s.v2 == nil {
		every = specRetry
	}
	if s.flight == nil && r.aggregator.Now().Sub(s.requestedAt) >= every && r.workCtx.Err() == nil {
		done := make(chan struct{})
		s.flight = done
		r.aggregator.probes.Go(func() {
			defer close(done)
			r.updateV2()
		})
	}
	if s.v2 != nil {
		return nil
	}
	return s.flight
}

// updateV2 reads the v2 document and stores it.
func (r *remote) updateV2() {
	s := &r.specs
	s.mu.Lock()
	before := s.v2
	s.mu.Unlock()
	next, err := r.fetchV2(before)
	if err != nil {
		r.aggregator.Logger.Debug("the OpenAPI document of an extension server could not be read", "apiservice", r.name, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v2, s.requestedAt, s.flight = next, r.aggregator.Now(), nil
}

// fetchV2 returns the document before if it is still valid or if the request fails.
func (r *remote) fetchV2(before *swagger) (*swagger, error) {
	ctx, cancel := context.WithTimeout(r.workCtx, specTimeout)
	defer cancel()
	tag := ""
	if before != nil {
		tag = before.tag
	}
	resp, body, err := r.get(ctx, "/openapi/v2", documentRequest{accept: api.MediaJSON, etag: tag, user: openAPIUser, limit: MaxOpenAPI})
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
	err = r.aggregator.decode("/openapi/v2", body, maxSwagger, func(data []byte) (err error) {
		part, err = openapi.ExtractGroupVersion(data, r.groupVersion())
		return err
	})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(part)
	return &swagger{text: part, tag: resp.Header.Get("ETag"), hash: hex.EncodeToString(sum[:])}, nil
}
