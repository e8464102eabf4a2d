package node

import (
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is the kind of an object in the graph.
type Kind uint8

const (
	Pod Kind = iota + 1
	Secret
	ConfigMap
	PersistentVolumeClaim
	PersistentVolume
	ResourceClaim
	ServiceAccount
	VolumeAttachment
	ResourceSlice
)

// object identifies an object.
type object struct {
	kind            Kind
	namespace, name string
}

// Graph records which objects belong to which node. It is safe for concurrent use.
type Graph struct {
	mu sync.RWMutex // leaf lock
	// pods holds the bound pods and the objects that they reference.
	pods map[object]podEntry
	// referencesByNode counts, for each object, the referencing pods of each node.
	referencesByNode map[object]map[string]int
	volumes          map[string]volumeEntry
	// volumesBySecret holds the volumes that need each secret.
	volumesBySecret map[object][]string
	// nodeOfObject holds the node of each volume attachment and resource slice.
	nodeOfObject map[object]string
}

// podEntry holds the node of a pod and the objects that the pod refers to.
type podEntry struct {
	node string
	refs []object
}

// volumeEntry holds the claim of a persistent volume and the Secrets that it refers to.
type volumeEntry struct {
	claim   object
	secrets []object
}

// NewGraph returns an empty graph.
func NewGraph() *Graph {
	return &Graph{
		pods: map[object]podEntry{}, referencesByNode: map[object]map[string]int{}, volumes: map[string]volumeEntry{},
		volumesBySecret: map[object][]string{}, nodeOfObject: map[object]string{},
	}
}

// Set adds or replaces a pod, a persistent volume, a volume attachment or a resource slice. It
// panics on other objects.
func (g *Graph) Set(obj metav1.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch o := obj.(type) {
	case *corev1.Pod:
		g.setPod(o)
	case *corev1.PersistentVolume:
		g.setVolume(o)
	case *storagev1.VolumeAttachment:
		g.setNode(object{kind: VolumeAttachment, name: o.Name}, o.Spec.NodeName)
	default:
		node, ok := NodeOfSlice(obj)
		if !ok {
			panic(fmt.Sprintf("node: unsupported type %T", obj))
		}
		g.setNode(object{kind: ResourceSlice, name: obj.GetName()}, node)
	}
}

// NodeOfSlice returns the node whose devices a resource slice of any version describes. The name is
// empty if the devices do not belong to a single node. The result is false for other objects.
func NodeOfSlice(obj any) (string, bool) {
	switch o := obj.(type) {
	case *resourcev1beta1.ResourceSlice:
		return o.Spec.NodeName, true
	case *resourcev1beta2.ResourceSlice:
		if o.Spec.NodeName == nil {
			return "", true
		}
		return *o.Spec.NodeName, true
	}
	return "", false
}

// Delete removes an object of a kind that Set accepts.
func (g *Graph) Delete(kind Kind, namespace, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deleteLocked(kind, namespace, name)
}

// Retain removes the objects of a kind for which keep returns false. It is called after events were
// missed.
func (g *Graph) Retain(kind Kind, keep func(namespace, name string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var removed []object
	collect := func(o object) {
		if o.kind == kind && !keep(o.namespace, o.name) {
			removed = append(removed, o)
		}
	}
	for o := range g.pods {
		collect(o)
	}
	for name := range g.volumes {
		collect(object{kind: PersistentVolume, name: name})
	}
	for o := range g.nodeOfObject {
		collect(o)
	}
	for _, o := range removed {
		g.deleteLocked(kind, o.namespace, o.name)
	}
}

func (g *Graph) deleteLocked(kind Kind, namespace, name string) {
	switch o := (object{kind, namespace, name}); kind {
	case Pod:
		g.removePod(o)
	case PersistentVolume:
		g.removeVolume(name)
	default:
		delete(g.nodeOfObject, o)
	}
}

func (g *Graph) setNode(o object, node string) {
	if node == "" {
		delete(g.nodeOfObject, o)
		return
	}
	g.nodeOfObject[o] = node
}

// setPod adds or replaces a pod and the edges from its node to the objects that it refers to.
func (g *Graph) setPod(p *corev1.Pod) {
	key := object{Pod, p.Namespace, p.Name}
	entry := podEntry{node: p.Spec.NodeName}
	if entry.node != "" {
		entry.refs = podRefs(p)
	}
	if old, ok := g.pods[key]; ok {
		if old.node == entry.node && slices.Equal(old.refs, entry.refs) {
			return // most updates change only the status
		}
		g.removePod(key)
	}
	if entry.node == "" {
		return
	}
	g.pods[key] = entry
	for _, ref := range entry.refs {
		nodes := g.referencesByNode[ref]
		if nodes == nil {
			nodes = map[string]int{}
			g.referencesByNode[ref] = nodes
		}
		nodes[entry.node]++
	}
}

// removePod removes a pod and its edges.
func (g *Graph) removePod(key object) {
	old := g.pods[key]
	delete(g.pods, key)
	for _, ref := range old.refs {
		nodes := g.referencesByNode[ref]
		nodes[old.node]--
		if nodes[old.node] <= 0 {
			delete(nodes, old.node)
		}
		if len(nodes) == 0 {
			delete(g.referencesByNode, ref)
		}
	}
}

// setVolume adds or replaces a persistent volume and the edges to its claim and Secrets.
func (g *Graph) setVolume(persistentVolume *corev1.PersistentVolume) {
	g.removeVolume(persistentVolume.Name)
	c := persistentVolume.Spec.ClaimRef
	if c == nil {
		return
	}
	entry := volumeEntry{claim: object{PersistentVolumeClaim, c.Namespace, c.Name}, secrets: secretsOfVolume(persistentVolume)}
	g.volumes[persistentVolume.Name] = entry
	for _, s := range entry.secrets {
		g.volumesBySecret[s] = append(g.volumesBySecret[s], persistentVolume.Name)
	}
}

// removeVolume removes a persistent volume and its edges.
func (g *Graph) removeVolume(name string) {
	old := g.volumes[name]
	delete(g.volumes, name)
	for _, s := range old.secrets {
		remaining := slices.DeleteFunc(g.volumesBySecret[s], func(v string) bool { return v == name })
		if len(remaining) == 0 {
			delete(g.volumesBySecret, s)
			continue
		}
		g.volumesBySecret[s] = remaining
	}
}

// HasReference reports whether an object belongs to a node.
func (g *Graph) HasReference(node string, kind Kind, namespace, name string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	referenced := object{kind, namespace, name}
	switch kind {
	case Pod:
		p, ok := g.pods[referenced]
		return ok && p.node == node
	case PersistentVolume:
		return g.isMountedBy(name, node)
	case VolumeAttachment, ResourceSlice:
		owner, ok := g.nodeOfObject[object{kind: kind, name: name}]
		return ok && owner == node
	case Secret:
		if g.referencesByNode[referenced][node] > 0 {
			return true
		}
		return slices.ContainsFunc(g.volumesBySecret[referenced], func(v string) bool { return g.isMountedBy(v, node) })
	}
	return g.referencesByNode[referenced][node] > 0
}

func (g *Graph) isMountedBy(volume, node string) bool {
	v, ok := g.volumes[volume]
	return ok && g.referencesByNode[v.claim][node] > 0
}
