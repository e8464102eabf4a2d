package build

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/cache/lister"
)

// newWritten follows the kinds that admission plugins judge writes by: who has
// been told that such an object is there must not get past it here. Who judges by
// one waits for what was written of its kind.
func newWritten() map[schema.GroupResource]*lister.Written {
	written := map[schema.GroupResource]*lister.Written{}
	for _, r := range []schema.GroupResource{
		{Resource: "namespaces"}, {Resource: "serviceaccounts"}, {Resource: "limitranges"}, {Resource: "resourcequotas"},
		{Group: schedulingv1.GroupName, Resource: "priorityclasses"}, {Group: storagev1.GroupName, Resource: "storageclasses"},
		{Group: networkingv1.GroupName, Resource: "ingressclasses"}, {Group: nodev1.GroupName, Resource: "runtimeclasses"},
		{Group: admissionregistrationv1.GroupName, Resource: "mutatingwebhookconfigurations"},
		{Group: admissionregistrationv1.GroupName, Resource: "validatingwebhookconfigurations"},
		{Group: admissionregistrationv1.GroupName, Resource: "validatingadmissionpolicies"},
		{Group: admissionregistrationv1.GroupName, Resource: "validatingadmissionpolicybindings"},
		{Group: admissionregistrationv1.GroupName, Resource: "mutatingadmissionpolicies"},
		{Group: admissionregistrationv1.GroupName, Resource: "mutatingadmissionpolicybindings"},
	} {
		written[r] = &lister.Written{}
	}
	return written
}

// noted hands over what is written, of the history that is followed then. Policies
// have parameters of any kind, and wait for all that was.
func (p *parts) noted(r schema.GroupResource, revision int64) {
	cache := p.wrote(r, revision)
	if w := p.written[r]; w != nil {
		w.Note(cache.Era(), revision)
	}
}
