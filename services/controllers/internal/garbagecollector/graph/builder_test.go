package graph_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"binnacle/services/controllers/internal/garbagecollector/graph"
	"binnacle/services/controllers/internal/resources"
)

// served is a resources.Discovery of one resource in the core group.
type served apidiscoveryv2.APIResourceDiscovery

func (s served) Groups(context.Context) ([]apidiscoveryv2.APIGroupDiscovery, error) {
	version := apidiscoveryv2.APIVersionDiscovery{
		Version:   "v1",
		Resources: []apidiscoveryv2.APIResourceDiscovery{apidiscoveryv2.APIResourceDiscovery(s)},
	}
	return []apidiscoveryv2.APIGroupDiscovery{{Versions: []apidiscoveryv2.APIVersionDiscovery{version}}}, nil
}

// TestRejectedWatchesDoNotCauseAStreamOfLists checks that lists are delayed if every watch fails at
// once.
func TestRejectedWatchesDoNotCauseAStreamOfLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := fake.NewTestScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const maxWatches = 20 // in 10 s; without a delay there would be thousands
		watches := 0
		client := fake.NewSimpleMetadataClient(scheme)
		client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
		})
		client.PrependWatchReactor("configmaps", func(clienttesting.Action) (bool, watch.Interface, error) {
			watches++
			if watches > maxWatches {
				cancel()
			}
			return true, nil, apierrors.NewResourceExpired("too old")
		})
		builder := graph.NewBuilder(graph.BuilderConfig{
			Graph: graph.New(graph.Config{}), Client: client, Log: slog.New(slog.DiscardHandler),
			Resources: resources.NewCache(served{
				Resource:     "configmaps",
				ResponseKind: &metav1.GroupVersionKind{Kind: "ConfigMap"},
				Verbs:        []string{"list", "watch", "delete"},
			}),
		})
		done := make(chan struct{})
		go func() { defer close(done); builder.Run(ctx) }()
		time.Sleep(10 * time.Second) // the bubble's time
		cancel()
		<-done
		if watches == 0 || watches > maxWatches {
			t.Errorf("got %d watches in 10 s, want 1 to %d", watches, maxWatches)
		}
	})
}
