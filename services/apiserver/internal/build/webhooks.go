package build

import (
	"context"
	"fmt"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/admission/webhooks"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// webhooks returns a function that returns the configuration of a plugin for webhooks.
func (p *parts) webhooks() func(resource string, configuration []byte) (webhooks.Config, error) {
	metrics := webhooks.NewMetrics(p.metrics)
	services, dialers := p.services(), p.webhookDialers()
	compiler := p.costed(features.StrictCostEnforcementForWebhooks)
	return func(resource string, configuration []byte) (webhooks.Config, error) {
		credentials, err := webhooks.LoadCredentials(configuration)
		if err != nil {
			return webhooks.Config{}, err
		}
		k := p.lookup(admissionregistrationv1.SchemeGroupVersion.WithResource(resource))
		return webhooks.Config{
			Configurations: webhooks.Source{Store: k.Store, Seen: k.Seen, Decode: func(e *watchcache.Entry) (metav1.Object, error) {
				return lastReadable(k.Coder, e)
			}},
			Ready: func() bool { return p.cache.Ready() && k.Store.Known() }, Family: p.family, Namespaces: &namespaces{p}, Authorizer: p.authz.chain,
			Compiler: compiler, Codec: p.codec, Shapes: &views.Shapes{}, Credentials: credentials, Services: services, Dialers: dialers, Calls: p.calls, Responses: p.admissionResponses,
			Notify: p.recordWebhookEvent, Metrics: metrics, Logger: p.log.With("kind", k.Resource.Resource),
		}, nil
	}
}

func (p *parts) mutatingWebhooks(c webhooks.Config, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	m, err := webhooks.NewMutating(c)
	if err != nil {
		return nil, err
	}
	p.life.onClose(m.Close)
	return m, nil
}

func (p *parts) validatingWebhooks(c webhooks.Config, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	v, err := webhooks.NewValidating(c)
	if err != nil {
		return nil, err
	}
	p.life.onClose(v.Close)
	return v, nil
}

// family returns the versions in which a resource is served now.
func (p *parts) family(k *registry.Kind) []*apiset.Resource { return p.kinds.Current().Family(k) }

// recordWebhookEvent creates an Event about a webhook for its configuration.
func (p *parts) recordWebhookEvent(ctx context.Context, n webhooks.Notice) {
	now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "admission-webhook-", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: n.Kind, Name: n.Configuration},
		Type:           corev1.EventTypeWarning, Reason: "WebhookUnreachable",
		Message: fmt.Sprintf("admission webhook %q is not called until it answers again: %s", n.Webhook, n.Reason),
		Source:  corev1.EventSource{Component: "binnacle-apiserver"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	if n.Reachable {
		e.Type, e.Reason, e.Message = corev1.EventTypeNormal, "WebhookAnswers", fmt.Sprintf("admission webhook %q answers again", n.Webhook)
	}
	if err := p.client.Create(ctx, internalclient.Of("", "v1", "events", metav1.NamespaceDefault), e); err != nil && ctx.Err() == nil {
		p.log.Warn("failed to write the event of a webhook", "configuration", n.Configuration, "webhook", n.Webhook, "error", err)
	}
}

// services returns the resolver for services of the cluster.
func (p *parts) services() *webhookclient.Services {
	o := &lister.Objects{Cache: p.cache}
	services := p.lookup(corev1.SchemeGroupVersion.WithResource("services"))
	internal := internalclient.Transport{Handler: func() http.Handler { return p.handler }}
	s := &webhookclient.Services{Self: p.base.address, Internal: internal, Get: func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
		return lister.Get[*corev1.Service](ctx, o, &services, namespace, name)
	}}
	if p.options.AggregatorRouting {
		endpoints := p.lookup(corev1.SchemeGroupVersion.WithResource("endpoints"))
		s.Endpoints = func(ctx context.Context, namespace, name string) (*corev1.Endpoints, error) {
			return lister.Get[*corev1.Endpoints](ctx, o, &endpoints, namespace, name)
		}
	}
	return s
}
