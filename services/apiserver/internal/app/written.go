package app

import (
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/objects"
)

// newWritten follows the kinds that admission plugins judge writes by: who has
// been told that such an object is there must not get past it here.
func newWritten() map[schema.GroupResource]*objects.Written {
	written := map[schema.GroupResource]*objects.Written{}
	for _, r := range []schema.GroupResource{
		{Resource: "namespaces"}, {Resource: "serviceaccounts"}, {Resource: "limitranges"}, {Resource: "resourcequotas"},
		{Group: schedulingv1.GroupName, Resource: "priorityclasses"}, {Group: storagev1.GroupName, Resource: "storageclasses"},
		{Group: networkingv1.GroupName, Resource: "ingressclasses"}, {Group: nodev1.GroupName, Resource: "runtimeclasses"},
	} {
		written[r] = &objects.Written{}
	}
	return written
}

// noted hands over what is written of them.
func (p *parts) noted() map[schema.GroupResource]func(int64) {
	noted := map[schema.GroupResource]func(int64){}
	for r, w := range p.written {
		noted[r] = p.noting(w)
	}
	return noted
}

// noting hands over what is written, of the history that is followed then.
func (p *parts) noting(w *objects.Written) func(int64) {
	return func(revision int64) { w.Note(p.cache.Era(), revision) }
}
