package build

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/serving/tlsfiles"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/watchcache"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/server"
)

// foreign returns the delegates for requests that this server does not serve.
func (p *parts) foreign() server.Delegates {
	return server.Delegates{Extension: p.extension, Peer: p.peer}
}

func (p *parts) extension(gv schema.GroupVersion) http.Handler {
	if p.extensions == nil {
		return nil
	}
	return p.extensions.Handler(gv)
}

// loadProxyClient loads the client certificate for extension servers and peers; nil if it is not
// configured.
func (p *parts) loadProxyClient() (*tlsfiles.Pair, error) {
	o := p.options.ProxyClient
	switch {
	case o.CertFile == "" && o.KeyFile == "":
		return nil, nil
	case o.CertFile == "" || o.KeyFile == "":
		return nil, errors.New("--proxy-client-cert-file and --proxy-client-key-file have to be given together")
	}
	pair, err := tlsfiles.LoadPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--proxy-client-cert-file: %w", err)
	}
	return pair, nil
}

// newExtensions creates the aggregator of extension servers.
func (p *parts) newExtensions() (*aggregation.Aggregator, error) {
	pair, err := p.loadProxyClient()
	if err != nil {
		return nil, err
	}
	p.proxyClientCert = pair
	k := p.lookup(apiServiceResource())
	o := &lister.Objects{Cache: p.cache}
	services, endpoints := p.lookup(corev1.SchemeGroupVersion.WithResource("services")), p.lookup(corev1.SchemeGroupVersion.WithResource("endpoints"))
	return aggregation.New(aggregation.Config{
		Store: k.Store,
		Decode: func(e *watchcache.Entry) (*apiregistrationv1.APIService, error) {
			obj, err := k.Coder.DecodeStored(e.Stored(), e.Revision)
			if err != nil {
				return nil, err
			}
			s, ok := obj.(*apiregistrationv1.APIService)
			if !ok {
				return nil, fmt.Errorf("%T is no APIService", obj)
			}
			return s, nil
		},
		Local: func(gv schema.GroupVersion) bool { return p.kinds.Current().BuiltIns().Serves(gv) },
		Service: func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
			return lister.Get[*corev1.Service](ctx, o, &services, namespace, name)
		},
		Endpoints: func(ctx context.Context, namespace, name string) (*corev1.Endpoints, error) {
			return lister.Get[*corev1.Endpoints](ctx, o, &endpoints, namespace, name)
		},
		Resolve: p.services().Resolve, Dial: p.clusterDial(),
		Certificate: func() *tls.Certificate {
			if pair == nil {
				return nil
			}
			return pair.Certificate()
		},
		MaxRequests: p.maxRequestsPerServer(), Place: p.api.Carried.Enter,
		FollowRedirects: !p.options.RejectRedirects, Write: p.writeAvailable,
		Metrics: aggregation.NewMetrics(p.metrics), Traces: p.traces, Logger: p.log, Now: time.Now,
	}), nil
}

// maxRequestsPerServer returns how many concurrent requests one extension server or peer may
// occupy: a quarter of all. 0 means no limit.
func (p *parts) maxRequestsPerServer() int {
	all := p.options.MaxInFlight + p.options.MaxMutatingInFlight
	if all <= 0 {
		return 0
	}
	return max(1, all/4)
}

func apiServiceResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: apiregistrationv1.GroupName, Version: "v1", Resource: "apiservices"}
}

// writeAvailable sets the condition Available of an APIService. Other replicas usually find the
// same, and write nothing if the condition is already set.
func (p *parts) writeAvailable(ctx context.Context, name string, c apiregistrationv1.APIServiceCondition) error {
	ref := internalclient.Of(apiregistrationv1.GroupName, "v1", "apiservices", "").Named(name)
	for range 5 {
		var s apiregistrationv1.APIService
		if err := p.client.Get(ctx, ref, &s); err != nil {
			return err
		}
		if !setAvailable(&s, c) {
			return nil
		}
		if err := p.client.Update(ctx, ref.Under("status"), &s, nil); !apierrors.IsConflict(err) {
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

// extensionTasks returns tasks that check extension servers and follow their APIServices, services
// and endpoints.
func (p *parts) extensionTasks() []task.Task {
	tasks := []task.Task{{Name: "extension servers", Run: p.extensions.Run}}
	for _, gvr := range []schema.GroupVersionResource{
		apiServiceResource(), corev1.SchemeGroupVersion.WithResource("services"), corev1.SchemeGroupVersion.WithResource("endpoints"),
	} {
		store := p.lookup(gvr).Store
		handle := func(events []watchcache.Event) {
			for i := range events {
				if e := events[i].Entry; e != nil {
					p.extensions.Moved(e.Namespace(), e.Name())
				}
			}
		}
		if gvr == apiServiceResource() {
			handle = func([]watchcache.Event) {
				p.documents.extensionsChanged()
				p.customVersions.wake()
				p.extensions.Wake()
			}
		}
		tasks = append(tasks, task.Task{Name: gvr.Resource + " of extension servers", Run: func(ctx context.Context) error { return followChanges(ctx, store, handle) }})
	}
	if p.proxyClientCert != nil {
		tasks = append(tasks, task.Task{Name: "certificate for extension servers and peers", Run: func(ctx context.Context) error {
			return tlsfiles.Watch(ctx, p.log, p.proxyClientCert)
		}})
	}
	return tasks
}

// authenticationConfig returns the data of the ConfigMap extension-apiserver-authentication.
func (p *parts) authenticationConfig() map[string]string {
	data := maps.Clone(proxyConfig(&p.options.Authentication))
	if data == nil {
		data = map[string]string{}
	}
	if b := p.server.ClientCABundle(); b != nil {
		data["client-ca-file"] = string(b.PEM()) // the loaded CAs, even if the file changed since
	}
	return data
}
