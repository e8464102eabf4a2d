package openapi

import (
	"context"
	"encoding/json"
	"net/url"
	goruntime "runtime"

	"golang.org/x/sync/errgroup"
	"k8s.io/kube-openapi/pkg/handler3"
)

// index is the list of the v3 documents.
type index struct {
	text []byte
	etag string
}

// list returns the index, built once for all requests that wait for it. Its errors include those of
// shared.get.
func (snap *snapshot) list(ctx context.Context) (*index, error) {
	return snap.index.get(ctx, func(within context.Context) (*index, error) {
		text, err := snap.listed(within)
		if err != nil {
			return nil, err
		}
		return &index{text, hash(text)}, nil
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
