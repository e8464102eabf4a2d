package width_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/security/flowcontrol/width"
	"binnacle/services/apiserver/internal/storage"
)

const prefix = "/registry/pods/"

// source is a store of 250 unchanging objects.
type source struct{}

func (source) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	var all []storage.KeyValue
	for i := range 250 {
		all = append(all, storage.KeyValue{
			Key:            fmt.Sprintf("%sn/p%03d", prefix, i),
			Value:          []byte("x"),
			ModRevision:    1,
			CreateRevision: 1,
		})
	}
	return storage.Position{Revision: 1}, page(all)
}

func (source) Follow(ctx context.Context, _ storage.Position, _ func(storage.Batch) error) error {
	<-ctx.Done()
	return ctx.Err()
}

func (source) Progress(context.Context) error { return nil }

func (source) VerifyHistory(context.Context, storage.Position) (int64, error) { return 1, nil }

// newStore returns the cache of these objects. One in ten is on node m and has the label a=b, the
// others are on node n.
func newStore(t *testing.T) *watchcache.Store {
	cache, err := watchcache.New(watchcache.Config{
		Source:          source{},
		CurrentRevision: source{},
		LabelsFrom:      1,
		Logger:          slog.New(slog.DiscardHandler),
		Resources: []watchcache.ResourceConfig{{
			Name:   "pods",
			Prefix: prefix,
			Index:  []string{"spec.nodeName"},
			Attributes: func(key string, _ []byte) (attributes.Attributes, error) {
				name := strings.TrimPrefix(key, prefix+"n/")
				at, labels := "n", map[string]string{}
				if strings.HasSuffix(name, "0") {
					at, labels = "m", map[string]string{"a": "b"}
				}
				return attributes.Attributes{
					Namespace: "n",
					Name:      name,
					Labels:    attributes.SetFromMap(labels),
					Fields:    attributes.SetFromMap(map[string]string{"spec.nodeName": at}),
				}, nil
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = cache.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	if err := cache.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return cache.Store("pods")
}

// TestListWidthFollowsExaminedObjects checks that the width of a list is the number of examined
// objects. An index reduces it. Selectors with too many requirements are not parsed.
func TestListWidthFollowsExaminedObjects(t *testing.T) {
	store := newStore(t)
	labelled := &requestinfo.Info{Verb: "list", LabelSelector: "a=b"}
	sel := objects.Selection{ExcludeCorrupt: true}
	var err error
	if sel.Labels, err = labelled.OwnSelectors().Labels(); err != nil {
		t.Fatal(err)
	}
	for i := 0; store.Snapshot().InspectedCount(sel, 1000) == 250; i++ { // until there is an index
		store.Snapshot().Select(sel, "", func(*objects.Entry) bool { return true })
		if i > 100 {
			t.Fatal("no index of labels was built")
		}
	}
	crowd := strings.Repeat(",x!=y", requestinfo.MaxRequirements)
	for _, test := range []struct {
		fields, labels string
		want           int
	}{
		{fields: "", want: 3},
		{fields: "spec.nodeName=m", want: 1},
		{fields: "spec.nodeName=n", want: 3},
		{fields: "spec.nodeName=m" + crowd, want: 3},
		{fields: "spec.nodeName", want: 3},
		{fields: "", labels: "a=b", want: 1},
		{fields: "", labels: "a=b" + crowd, want: 3},
		{fields: "", labels: "a=,", want: 3},
	} {
		op := &requestinfo.Info{
			Verb:          "list",
			FieldSelector: test.fields,
			LabelSelector: test.labels,
			Query:         url.Values{},
			Target:        &apiset.Resource{Store: store},
		}
		if got := width.Estimate(op, 10).Seats; got != test.want {
			t.Errorf("fields %.20s, labels %.20s: got %d seats, want %d", test.fields, test.labels, got, test.want)
		}
	}
}
