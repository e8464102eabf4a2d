package allocator

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/rest/internalclient"
)

// problem is a finding of a repair: its kind in metrics, and its event.
type problem struct{ kind, reason, action, note string }

// about is the object that an event is about.
type about struct {
	corev1.ObjectReference
}

func aboutService(s *corev1.Service) about {
	return about{corev1.ObjectReference{
		APIVersion: "v1", Kind: "Service", Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion,
	}}
}

func aboutAddress(a *networkingv1.IPAddress) about {
	return about{corev1.ObjectReference{
		APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "IPAddress", Name: a.Name, UID: a.UID, ResourceVersion: a.ResourceVersion,
	}}
}

// report counts a problem and creates an event for it, unless the previous repair reported the same
// problem.
func (r *run) report(ctx context.Context, on about, count *prometheus.CounterVec, p problem) {
	count.WithLabelValues(p.kind).Inc()
	key := fmt.Sprintf("%s %s %s", on.UID, p.reason, p.note)
	r.seen[key] = true
	if r.repairs.reported[key] {
		return
	}
	r.Logger.Warn("service allocation", "kind", on.Kind, "namespace", on.Namespace, "name", on.Name, "reason", p.reason, "note", p.note)
	namespace := on.Namespace
	if namespace == "" {
		namespace = api.DefaultNamespace
	}
	controller := "ipallocator-repair-controller"
	if p.action == "PortAllocation" {
		controller = "portallocator-repair-controller"
	}
	now := r.Now()
	event := &eventsv1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", strings.ReplaceAll(on.Name, ":", "."), now.UnixNano()), Namespace: namespace},
		EventTime:  metav1.NewMicroTime(now), ReportingController: controller, ReportingInstance: controller + "-" + r.Identity,
		Action: p.action, Reason: p.reason, Regarding: on.ObjectReference, Note: p.note, Type: corev1.EventTypeWarning,
	}
	path := internalclient.Collection(eventsv1.GroupName, eventsv1.SchemeGroupVersion.Version, "events", namespace)
	if err := r.API.Create(ctx, path, event); err != nil {
		r.Logger.Warn("failed to write an event", "error", err)
	}
}
