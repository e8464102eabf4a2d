package aggregate

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
	"binnacle/services/apiserver/internal/openapi"
)

const (
	// reader is who asks for documents of OpenAPI.
	reader = "system:aggregator"
	// A v2 document is asked for again when somebody wants it after specEvery, or
	// after specRetry when there was none.
	specEvery = time.Minute
	specRetry = 10 * time.Second
	// specTimeout bounds the question, specWait how long a client waits for it.
	specTimeout = 15 * time.Second
	specWait    = 3 * time.Second
)

// specs are what is known of a server's documents of OpenAPI.
type specs struct {
	v3 atomic.Pointer[index]

	mu     sync.Mutex // a leaf
	v2     *swagger
	asked  time.Time
	flight chan struct{} // closed when the answer is there
}

// index says that a server has a v3 document of the group version, and its hash.
type index struct {
	has       bool
	hash, tag string
}

// swagger is a server's v2 document, cut down to the group version.
type swagger struct {
	text []byte
	// tag is the server's, hash that of the text.
	tag, hash string
}

// findV3 finds out whether the server has a v3 document; changed tells whether that is
// something else than before.
func (r *remote) findV3(ctx context.Context) (changed bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	before := r.specs.v3.Load()
	if before == nil {
		before = &index{}
	}
	resp, body, err := r.get(ctx, "/openapi/v3", question{tag: before.tag, as: reader})
	if err != nil || resp.StatusCode == http.StatusNotModified {
		return false
	}
	next := &index{}
	var all handler3.OpenAPIV3Discovery
	if resp.StatusCode == http.StatusOK && r.all.decode("/openapi/v3", body, maxValues, into(&all)) == nil {
		var at handler3.OpenAPIV3DiscoveryGroupVersion
		if at, next.has = all.Paths[strings.TrimPrefix(r.path(), "/")]; next.has {
			next.tag = resp.Header.Get("ETag")
			if u, err := url.Parse(at.ServerRelativeURL); err == nil {
				next.hash = u.Query().Get("hash")
			}
		}
	}
	r.specs.v3.Store(next)
	return next.has != before.has || next.hash != before.hash
}

// Others are the group versions whose servers have v3 documents.
func (a *Aggregator) Others() (out []openapi.Other) {
	for gv, r := range a.directory().remotes {
		if v3 := r.specs.v3.Load(); v3 != nil && v3.has && !a.Local(gv) {
			out = append(out, openapi.Other{GroupVersion: gv, Hash: v3.hash, Document: r})
		}
	}
	return out
}

// Swaggers are the v2 documents of the servers that are there. Those that were not
// asked for, or long ago, are now; the first answer is waited for, but not long.
func (a *Aggregator) Swaggers(ctx context.Context) (out []openapi.Swagger) {
	var all []*remote
	for gv, r := range a.directory().remotes {
		if !a.Local(gv) && r.available() && r.broken == nil {
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
			out = append(out, openapi.Swagger{GroupVersion: r.groupVersion(), Tag: s.hash, Text: s.text})
		}
		r.specs.mu.Unlock()
	}
	return out
}

// readV2 asks for the v2 document where it is time; it returns what to wait for where
// there is none yet.
func (r *remote) readV2() <-chan struct{} {
	s := &r.specs
	s.mu.Lock()
	defer s.mu.Unlock()
	every := specEvery
	if s.v2 == nil {
		every = specRetry
	}
	if s.flight == nil && r.all.Now().Sub(s.asked) >= every && r.life.Err() == nil {
		done := make(chan struct{})
		s.flight = done
		r.all.probes.Go(func() {
			defer close(done)
			r.takeV2()
		})
	}
	if s.v2 != nil {
		return nil
	}
	return s.flight
}

// takeV2 reads the v2 document and keeps it.
func (r *remote) takeV2() {
	s := &r.specs
	s.mu.Lock()
	before := s.v2
	s.mu.Unlock()
	next, err := r.fetchV2(before)
	if err != nil {
		r.all.Logger.Debug("the OpenAPI document of an extension server could not be read", "apiservice", r.name, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v2, s.asked, s.flight = next, r.all.Now(), nil
}

// fetchV2 returns what was before when that is still right, or nothing else can be had.
func (r *remote) fetchV2(before *swagger) (*swagger, error) {
	ctx, cancel := context.WithTimeout(r.life, specTimeout)
	defer cancel()
	tag := ""
	if before != nil {
		tag = before.tag
	}
	resp, body, err := r.get(ctx, "/openapi/v2", question{accept: api.MediaJSON, tag: tag, as: reader})
	switch {
	case err != nil:
		return before, err
	case resp.StatusCode == http.StatusNotModified:
		return before, nil
	case resp.StatusCode == http.StatusNotFound: // it has none
		return nil, nil
	case resp.StatusCode != http.StatusOK:
		return before, fmt.Errorf("/openapi/v2: %s", resp.Status)
	}
	var part []byte
	err = r.all.decode("/openapi/v2", body, maxSwagger, func(text []byte) (err error) {
		part, err = openapi.Part(text, r.groupVersion())
		return err
	})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(part)
	return &swagger{text: part, tag: resp.Header.Get("ETag"), hash: hex.EncodeToString(sum[:])}, nil
}
