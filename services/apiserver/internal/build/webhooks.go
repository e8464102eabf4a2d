package build

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/admission/webhooks"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// webhooks returns a function that returns the configuration of a plugin for webhooks.
func (a *admissionBuilder) webhooks() func(resource string, configuration []byte) (webhooks.Config, error) {
	metrics := webhooks.NewMetrics(a.metrics)
	compiler := a.costed(features.StrictCostEnforcementForWebhooks)
	return func(resource string, configuration []byte) (webhooks.Config, error) {
		credentials, err := webhooks.LoadCredentials(configuration)
		if err != nil {
			return webhooks.Config{}, err
		}
		k := a.caches.lookup(admissionregistrationv1.SchemeGroupVersion.WithResource(resource))
		return webhooks.Config{
			Configurations: webhooks.Source{Store: k.Store, WaitForWrites: k.WaitForWrites, Decode: func(e *watchcache.Entry) (metav1.Object, error) {
				return lastReadable(k.Coder, e)
			}},
			Ready: func() bool { return a.caches.cache.Ready() && k.Store.Known() }, Family: a.sets.family, Namespaces: a.namespaces, Authorizer: a.authz.chain,
			Compiler: compiler, Codec: a.caches.codec, Shapes: &views.Shapes{}, Credentials: credentials, Services: a.network.services, Dialers: a.network.dialers, Calls: a.calls, Responses: a.responses,
			Notify: a.recordWebhookEvent, Metrics: metrics, Logger: a.log.With("kind", k.Resource.Resource),
		}, nil
	}
}

func (a *admissionBuilder) mutatingWebhooks(c webhooks.Config, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	m, err := webhooks.NewMutating(c)
	if err != nil {
		return nil, err
	}
	a.life.onClose(m.Close)
	return m, nil
}

func (a *admissionBuilder) validatingWebhooks(c webhooks.Config, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	v, err := webhooks.NewValidating(c)
	if err != nil {
		return nil, err
	}
	a.life.onClose(v.Close)
	return v, nil
}

// recordWebhookEvent creates an Event about a webhook for its configuration.
func (a *admissionBuilder) recordWebhookEvent(ctx context.Context, n webhooks.Notice) {
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
	if err := a.sets.client.Create(ctx, internalclient.Collection("", "v1", "events", metav1.NamespaceDefault), e); err != nil && ctx.Err() == nil {
		a.log.Warn("failed to write the event of a webhook", "configuration", n.Configuration, "webhook", n.Webhook, "error", err)
	}
}
