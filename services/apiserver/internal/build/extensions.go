package build

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/serving/tlsfiles"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/config"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// newExtensions creates the aggregator of extension servers. enter acquires a slot for a proxied
// request.
func (d *delegates) newExtensions(b *base, o *config.Options, k *caches, kinds *apiset.Live, n *network, enter func(*http.Request) (func(), error)) {
	registered := k.lookup(apiServiceResource())
	objects, services, endpoints := &lister.Objects{Cache: k.cache}, k.core("services"), k.core("endpoints")
	d.extensions = aggregation.New(aggregation.Config{
		Store: registered.Store,
		Decode: func(e *watchcache.Entry) (*apiregistrationv1.APIService, error) {
			obj, err := registered.Coder.DecodeStored(e.Stored(), e.Revision)
			if err != nil {
				return nil, err
			}
			s, ok := obj.(*apiregistrationv1.APIService)
			if !ok {
				return nil, fmt.Errorf("%T is no APIService", obj)
			}
			return s, nil
		},
		Local: func(gv schema.GroupVersion) bool { return kinds.Current().BuiltIns().Serves(gv) },
		Service: func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
			return lister.Get[*corev1.Service](ctx, objects, &services, namespace, name)
		},
		Endpoints: func(ctx context.Context, namespace, name string) (*corev1.Endpoints, error) {
			return lister.Get[*corev1.Endpoints](ctx, objects, &endpoints, namespace, name)
		},
		Resolve: n.services.Resolve, Dial: n.dialers.Cluster, Certificate: d.certificate,
		MaxRequests: o.Requests.MaxPerServer(), MaxChecks: o.Bounds.ServerChecks, MaxPages: o.Bounds.Pages, Place: enter,
		FollowRedirects: !o.Aggregation.RejectRedirects, Write: d.writeAvailable,
		Metrics: aggregation.NewMetrics(b.metrics), Traces: b.traces, Logger: b.log, Now: time.Now,
	})
	b.life.whileServing("extension servers", d.extensions.Run)
	for _, kind := range []lister.Kind{services, endpoints} {
		b.life.whileServing(kind.Resource.Resource+" of extension servers", func(ctx context.Context) error {
			return followNames(ctx, kind.Store, d.extensions.Moved)
		})
	}
}

// loadProxyClient loads the client certificate for extension servers and peers; nil if it is not
// configured.
func loadProxyClient(o *config.AggregationOptions) (*tlsfiles.Pair, error) {
	c := o.ProxyClient
	switch {
	case c.CertFile == "" && c.KeyFile == "":
		return nil, nil
	case c.CertFile == "" || c.KeyFile == "":
		return nil, errors.New("--proxy-client-cert-file and --proxy-client-key-file have to be given together")
	}
	pair, err := tlsfiles.LoadPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--proxy-client-cert-file: %w", err)
	}
	return pair, nil
}

func apiServiceResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: apiregistrationv1.GroupName, Version: "v1", Resource: "apiservices"}
}

// writeAvailable sets the condition Available of an APIService. Other replicas usually find the
// same, and write nothing if the condition is already set.
func (d *delegates) writeAvailable(ctx context.Context, name string, c apiregistrationv1.APIServiceCondition) error {
	ref := internalclient.Collection(apiregistrationv1.GroupName, "v1", "apiservices", "").Named(name)
	for range 5 {
		var s apiregistrationv1.APIService
		if err := d.client.Get(ctx, ref, &s); err != nil {
			return err
		}
		if !setAvailable(&s, c) {
			return nil
		}
		if err := d.client.Update(ctx, ref.Subresource("status"), &s, nil); !apierrors.IsConflict(err) {
			return err
		}
	}
	return fmt.Errorf("%s: too many conflicting updates", name)
}

// setAvailable sets the condition and reports whether it changed.
func setAvailable(s *apiregistrationv1.APIService, c apiregistrationv1.APIServiceCondition) bool {
	for i := range s.Status.Conditions {
		was := &s.Status.Conditions[i]
		if was.Type != c.Type {
			continue
		}
		if aggregation.Same(was, &c) {
			return false
		}
		if was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		*was = c
		return true
	}
	s.Status.Conditions = append(s.Status.Conditions, c)
	return true
}
