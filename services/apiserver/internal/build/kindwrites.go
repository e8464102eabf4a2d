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

// newKindWrites returns a read-your-writes barrier for each kind that admission plugins read. A
// client that has created such an object must see its effect in the next request to this server.
func newKindWrites() map[schema.GroupResource]*lister.WriteBarrier {
	written := map[schema.GroupResource]*lister.WriteBarrier{}
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
		written[r] = &lister.WriteBarrier{}
	}
	return written
}
