package podsecurity

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// podReader decodes some of the fields of a stored pod.
type podReader func(codec.Item) (registry.Object, error)

// Lister looks up namespaces and their pods.
type Lister struct {
	*lister.Objects
	namespaces lister.CachedResource
	// readForSelection decodes the fields that PodForSelection returns, readForEvaluation the
	// fields that PodForEvaluation returns.
	readForSelection, readForEvaluation podReader
}

// NewLister returns a lister of namespaces and of the pods of objects.
func NewLister(objects *lister.Objects, namespaces lister.CachedResource) (*Lister, error) {
	out := &Lister{Objects: objects, namespaces: namespaces}
	var err error
	if out.readForSelection, err = objects.Pods.Coder.FieldsDecoder("metadata.name", "metadata.ownerReferences", "spec.runtimeClassName"); err != nil {
		return nil, err
	}
	out.readForEvaluation, err = objects.Pods.Coder.FieldsDecoder("metadata.name", "metadata.labels", "metadata.annotations", "spec")
	return out, err
}

// GetNamespace returns a namespace from the cache.
func (l *Lister) GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return lister.Get[*corev1.Namespace](ctx, l.Objects, &l.namespaces, "", name)
}

// PodsIn returns the pods of a namespace, the oldest first. Each pod is decoded when it is read.
func (l *Lister) PodsIn(ctx context.Context, namespace string) ([]Stored, error) {
	entries, _, err := l.Stored(ctx, &l.Pods, namespace)
	if err != nil {
		return nil, err
	}
	pods := make([]Stored, len(entries))
	for i, entry := range entries {
		pods[i] = &storedPod{lister: l, entry: entry}
	}
	return pods, nil
}

// storedPod implements Stored.
type storedPod struct {
	lister *Lister
	entry  *objects.Entry
}

func (p *storedPod) Size() int                             { return p.entry.Size() }
func (p *storedPod) PodForSelection() (*corev1.Pod, error) { return p.read(p.lister.readForSelection) }
func (p *storedPod) PodForEvaluation() (*corev1.Pod, error) {
	return p.read(p.lister.readForEvaluation)
}

// read decodes the pod with a reader.
func (p *storedPod) read(reader podReader) (*corev1.Pod, error) {
	if err := p.entry.Corrupt(); err != nil {
		return nil, err
	}
	lease := p.entry.Borrow()
	defer lease.Release()
	obj, err := reader(codec.Item{Stored: lease.Value, Revision: p.entry.Revision})
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}
