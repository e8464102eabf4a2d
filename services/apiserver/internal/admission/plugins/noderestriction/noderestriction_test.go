package noderestriction_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/noderestriction"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// errBroken is the error of lookups that fail.
var errBroken = errors.New("the cache is not loaded")

// objects has the pod mine on node n1, the pod theirs on node n2, and the node n1. Each claim
// exists and has a volume and a driver.
type objects struct{}

func (objects) Pod(_ context.Context, ns, name string) (*corev1.Pod, error) {
	switch name {
	case "mine", "theirs":
		found := pod(func(found *corev1.Pod) { found.Name, found.Namespace, found.UID = name, ns, "uid-of-pod" })
		if name == "theirs" {
			found.Spec.NodeName = "n2"
		}
		found.Spec.Volumes = []corev1.Volume{
			{
				Name: "p",
				VolumeSource: corev1.VolumeSource{
					Projected: &corev1.ProjectedVolumeSource{
						Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault"}}},
					},
				},
			},
			{
				Name:         "c",
				VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}},
			},
			{Name: "d", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "inline"}}},
		}
		return found, nil
	case "broken":
		return nil, errBroken
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (objects) Node(_ context.Context, name string) (*corev1.Node, error) {
	if name != "n1" {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-n1"}}, nil
}

func (objects) Claim(_ context.Context, _, name string) (*corev1.PersistentVolumeClaim, error) {
	return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "of-" + name}}, nil
}

func (objects) Volume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	v := &corev1.PersistentVolume{}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver-" + name}
	return v, nil
}

func (objects) Driver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	return &storagev1.CSIDriver{
		Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: "audience-of-" + name}}},
	}, nil
}

// audiences permits tokens of the service account ns/sa for the audience granted to all nodes.
type audiences struct{}

func (audiences) Authorize(_ context.Context, a *authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.Verb == "request-serviceaccounts-token-audience" && a.ResourceName == "granted" && a.Name == "sa" && a.Namespace == "ns" {
		return authorizer.Allow, "", nil
	}
	return authorizer.NoOpinion, "", nil
}

func ptr[T any](v T) *T { return &v }

// pod returns a valid mirror pod with changes.
func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "p",
			Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "h"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "uid-of-n1", Controller: ptr(true)},
			},
		},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c"}}},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// volume returns a change that gives a pod a volume.
func volume(s corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: s}} }
}

// aNode returns node n1. labels holds the keys of its labels.
func aNode(labels ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{}}}
	for _, l := range labels {
		node.Labels[l] = "x"
	}
	return node
}

// slice returns a ResourceSlice of a node in v1beta1.
func slice(node string) *resourcev1beta1.ResourceSlice {
	return &resourcev1beta1.ResourceSlice{Spec: resourcev1beta1.ResourceSliceSpec{NodeName: node}}
}

// newerSlice returns a ResourceSlice of a node in v1beta2.
func newerSlice(node string) *resourcev1beta2.ResourceSlice {
	return &resourcev1beta2.ResourceSlice{Spec: resourcev1beta2.ResourceSliceSpec{NodeName: &node}}
}

// claim returns a persistent volume claim with a change.
func claim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", ResourceVersion: "1"}}
	change(c)
	return c
}

// tokenFor returns a token request that is bound to ref.
func tokenFor(ref *authenticationv1.BoundObjectReference, audiences ...string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: ref, Audiences: audiences}}
}

// boundTo returns a reference to a pod.
func boundTo(name string) *authenticationv1.BoundObjectReference {
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: "uid-of-pod"}
}

// certificate returns a request for a certificate with a common name.
func certificate(t *testing.T, signer, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: signer, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
	}}
}

// write is a write by node n1 and its wanted result.
type write struct {
	op           admission.Operation
	resource     string // resource[/subresource][.group]
	name         string
	object, old  runtime.Object
	want         string // part of the error; empty when admitted
	notForbidden bool   // the error is not Forbidden but NotFound
}

// attributes returns the write as a request of a user.
func (w *write) attributes(user *request.User) *admission.Request {
	path, group, _ := strings.Cut(w.resource, ".")
	resource, sub, _ := strings.Cut(path, "/")
	return &admission.Request{
		Operation:   w.op,
		Resource:    &registry.Kind{Names: registry.Names{Group: group, Resource: resource}},
		Subresource: sub,
		Namespace:   "ns",
		Name:        w.name,
		Object:      w.object,
		OldObject:   w.old,
		User:        user,
	}
}

// Operations of writes.
const (
	create = admission.Create
	update = admission.Update
	remove = admission.Delete
)

// checkWrites checks the result of each write of node n1. It also checks that the write is admitted
// for other users, and rejected for a node without a name.
func checkWrites(t *testing.T, writes []write) {
	t.Helper()
	plugin := &noderestriction.Plugin{Objects: objects{}, Authorizer: audiences{}, Audiences: true}
	for _, attempt := range writes {
		err := plugin.Admit(t.Context(), attempt.attributes(&request.User{Name: "system:node:n1", Groups: []string{"system:nodes"}}))
		if (err == nil) != (attempt.want == "") ||
			err != nil && (!strings.Contains(err.Error(), attempt.want) || apierrors.IsForbidden(err) == attempt.notForbidden) {
			t.Errorf("%s %s %q: got error %v, want one that contains %q, or none if that is empty (Forbidden: %t)",
				attempt.op, attempt.resource, attempt.name, err, attempt.want, !attempt.notForbidden)
		}
		for _, u := range []*request.User{{Name: "system:node:n1"}, {Name: "n1", Groups: []string{"system:nodes"}}, nil} {
			if err := plugin.Admit(t.Context(), attempt.attributes(u)); err != nil {
				t.Errorf("%s %s by %v: got error %v, want none", attempt.op, attempt.resource, u, err)
			}
		}
		unnamedNode := &request.User{Name: "system:node:", Groups: []string{"system:nodes"}}
		if err := plugin.Admit(t.Context(), attempt.attributes(unnamedNode)); !apierrors.IsForbidden(err) {
			t.Errorf("%s %s by a node without a name: got %v, want an error of type Forbidden", attempt.op, attempt.resource, err)
		}
	}
}

// TestNodeMayWriteOnlyItsOwnNode checks what a node may write to nodes.
func TestNodeMayWriteOnlyItsOwnNode(t *testing.T) {
	tainted := aNode()
	tainted.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
	configured := aNode()
	configured.Spec.ConfigSource = &corev1.NodeConfigSource{}
	csiNode := metav1.OwnerReference{APIVersion: "storage.k8s.io/v1", Kind: "CSINode", Name: "n1", UID: "u"}
	owned := func(by metav1.OwnerReference) *corev1.Node {
		n := aNode()
		n.OwnerReferences = []metav1.OwnerReference{by}
		return n
	}
	checkWrites(t, []write{
		{op: create, resource: "nodes", name: "n1",
			object: aNode(
				"zone",
				"kubernetes.io/hostname",
				"node.kubernetes.io/x",
				"a.kubelet.kubernetes.io/y",
				"example.com/z",
				"topology.kubernetes.io/zone",
			)},
		{op: create, resource: "nodes", name: "n2", object: aNode(), want: `node "n1" is not allowed to modify node "n2"`},
		{op: create, resource: "nodes", name: "n1", object: configured,
			want: "not allowed to create pods with a non-nil configSource"},
		{op: create, resource: "nodes", name: "n1", object: aNode("node-restriction.kubernetes.io/a", "x.k8s.io/b", "c"),
			want: "not allowed to set the following labels: node-restriction.kubernetes.io/a, x.k8s.io/b"},
		{op: update, resource: "nodes", name: "n1", object: aNode("kubernetes.io/os"), old: aNode("kubernetes.io/arch")},
		{op: update, resource: "nodes", name: "n1", object: aNode(),
			old:  aNode("kubernetes.io/role", "q.node-restriction.kubernetes.io/b"),
			want: "is not allowed to modify labels: kubernetes.io/role, q.node-restriction.kubernetes.io/b"},
		{op: update, resource: "nodes", name: "n1", object: aNode("kubernetes.io/role"), old: aNode("kubernetes.io/role")},
		{op: update, resource: "nodes", name: "n1", object: tainted, old: aNode(), want: `node "n1" is not allowed to modify taints`},
		{op: update, resource: "nodes", name: "n1", object: aNode(), old: tainted, want: `node "n1" is not allowed to modify taints`},
		{op: create, resource: "nodes", name: "n1", object: owned(csiNode), want: `node "n1" is not allowed to set ownerReferences`},
		{op: update, resource: "nodes", name: "n1", object: owned(csiNode), old: aNode(),
			want: `node "n1" is not allowed to modify ownerReferences`},
		{op: update, resource: "nodes", name: "n1", object: aNode(), old: owned(csiNode),
			want: `node "n1" is not allowed to modify ownerReferences`},
		{op: update, resource: "nodes/status", name: "n1", object: owned(csiNode), old: aNode(),
			want: `node "n1" is not allowed to modify ownerReferences`},
		{op: update, resource: "nodes", name: "n1", object: owned(csiNode), old: owned(csiNode)},
		{op: update, resource: "nodes", name: "n1", object: configured, old: aNode(), want: "not allowed to update configSource"},
		{op: update, resource: "nodes", name: "n1", object: aNode(), old: configured},
		{op: update, resource: "nodes/status", name: "n2", object: aNode(), old: aNode(), want: "not allowed to modify node"},
	})
}

// TestNodeMayWriteOnlyItsOwnMirrorPods checks what a node may write to pods: mirror pods, evictions
// and statuses.
func TestNodeMayWriteOnlyItsOwnMirrorPods(t *testing.T) {
	owner := func(change func(*metav1.OwnerReference)) *corev1.Pod {
		return pod(func(p *corev1.Pod) { change(&p.OwnerReferences[0]) })
	}
	const otherOwner = "can only create pods with an owner reference set to itself"
	checkWrites(t, []write{
		{op: create, resource: "pods", name: "p", object: pod()},
		{op: create, resource: "pods", name: "p", object: pod(func(p *corev1.Pod) { p.Annotations = nil }),
			want: `pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods`},
		{op: create, resource: "pods", name: "p", object: pod(func(p *corev1.Pod) { p.Spec.NodeName = "n2" }),
			want: "with spec.nodeName set to itself"},
		{op: create, resource: "pods", name: "p", object: pod(func(p *corev1.Pod) { p.OwnerReferences = nil }), want: otherOwner},
		{op: create, resource: "pods", name: "p",
			object: pod(func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, p.OwnerReferences[0]) }),
			want:   "with a single owner reference"},
		{op: create, resource: "pods", name: "p", object: owner(func(o *metav1.OwnerReference) { o.Name = "n2" }), want: otherOwner},
		{op: create, resource: "pods", name: "p", object: owner(func(o *metav1.OwnerReference) { o.Kind = "Pod" }), want: otherOwner},
		{op: create, resource: "pods", name: "p", object: owner(func(o *metav1.OwnerReference) { o.Controller = nil }),
			want: "with a controller owner reference"},
		{op: create, resource: "pods", name: "p",
			object: owner(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr(true) }),
			want:   "must not set blockOwnerDeletion"},
		{op: create, resource: "pods", name: "p", object: owner(func(o *metav1.OwnerReference) { o.UID = "old" }),
			want: "node n1 UID mismatch: expected old got uid-of-n1"},
		{op: create, resource: "pods", name: "p", object: pod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "sa" }),
			want: `node "n1" can not create pods that reference a service account`},
		{op: create, resource: "pods", name: "p",
			object: pod(volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}},
			}})),
			want: "reference clustertrustbundles"},
		{op: create, resource: "pods", name: "p",
			object: pod(volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}})), want: "reference secrets"},
		{op: create, resource: "pods", name: "p",
			object: pod(volume(corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}},
			})),
			want: "reference configmaps"},
		{op: create, resource: "pods", name: "p",
			object: pod(volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}})),
			want:   "reference persistentvolumeclaims"},
		{op: create, resource: "pods", name: "p",
			object: pod(func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "r"}} }),
			want:   "reference resourceclaims"},
		{op: create, resource: "pods", name: "p", object: aNode(), want: "unexpected type *v1.Node"},
		{op: update, resource: "pods", name: "p", object: pod(), old: pod(),
			want: `unexpected operation "UPDATE", node "n1" can only create and delete mirror pods`},
		{op: remove, resource: "pods", name: "mine"},
		{op: remove, resource: "pods", name: "theirs", want: `node "n1" can only delete pods with spec.nodeName set to itself`},
		{op: remove, resource: "pods", name: "none", want: `pods "none" not found`, notForbidden: true},
		{op: remove, resource: "pods", name: "broken", want: "the cache is not loaded"},
		{op: create, resource: "pods/binding", name: "mine", want: `unexpected pod subresource "binding"`},
		{op: create, resource: "pods/eviction", name: "mine", object: &policyv1.Eviction{}},
		{op: create, resource: "pods/eviction", object: &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}},
			want: "node n1 can only evict pods"},
		{op: create, resource: "pods/eviction", object: &policyv1.Eviction{}, want: "could not determine pod"},
		{op: update, resource: "pods/eviction", name: "mine", object: &policyv1.Eviction{}, want: "unexpected operation"},
		{op: update, resource: "pods/status", name: "p", object: pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }),
			old: pod()},
		{op: update, resource: "pods/status", name: "p",
			object: pod(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), old: pod(),
			want: `node "n1" cannot update labels through pod status`},
		{op: update, resource: "pods/status", name: "p", object: pod(), old: pod(func(p *corev1.Pod) { p.Spec.NodeName = "n2" }),
			want: "can only update pod status for pods with spec.nodeName set to itself"},
		{op: update, resource: "pods/status", name: "p", object: pod(func(p *corev1.Pod) {
			p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "r", ResourceClaimName: ptr("c")}}
		}), old: pod(), want: "cannot update resource claim"},
	})
}

// TestNodeMayUpdateOnlyCapacityAndConditionsOfClaims checks what a node may write to persistent
// volume claims.
func TestNodeMayUpdateOnlyCapacityAndConditionsOfClaims(t *testing.T) {
	checkWrites(t, []write{
		{op: update, resource: "persistentvolumeclaims/status", name: "c", object: claim(func(c *corev1.PersistentVolumeClaim) {
			c.ResourceVersion, c.Status.Capacity = "", corev1.ResourceList{}
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "x"}}
		}), old: claim(func(*corev1.PersistentVolumeClaim) {})},
		{op: update, resource: "persistentvolumeclaims/status", name: "c",
			object: claim(func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"a": "b"} }),
			old:    claim(func(*corev1.PersistentVolumeClaim) {}), want: "not allowed to update fields other than"},
		{op: update, resource: "persistentvolumeclaims/status", name: "c",
			object: claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = "Lost" }),
			old:    claim(func(*corev1.PersistentVolumeClaim) {}), want: "not allowed to update fields other than"},
		{op: update, resource: "persistentvolumeclaims", name: "c", object: claim(func(*corev1.PersistentVolumeClaim) {}),
			old: claim(func(*corev1.PersistentVolumeClaim) {}), want: "may only update PVC status"},
	})
}

// TestNodeMayRequestTokensOnlyForItsPods checks which tokens a node may request.
func TestNodeMayRequestTokensOnlyForItsPods(t *testing.T) {
	checkWrites(t, []write{
		{op: create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(boundTo("mine"), "vault")},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(boundTo("mine"), "audience-of-inline")},
		{op: create, resource: "serviceaccounts/token", name: "sa",
			object: tokenFor(boundTo("mine"), "audience-of-driver-of-claim")},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(boundTo("mine"), "granted")},
		{op: create, resource: "serviceaccounts/token", name: "other", object: tokenFor(boundTo("mine"), "granted"),
			want: `audience "granted" not found in pod spec volume, system:node:n1 is not authorized to request tokens for this audience`},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(boundTo("mine")),
			want: `audience "" not found in pod spec volume`},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(boundTo("mine"), "vault", "granted"),
			want: "0 or 1 audiences"},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(nil), want: "token not bound to a pod"},
		{op: create, resource: "serviceaccounts/token", name: "sa",
			object: tokenFor(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "s", UID: "u"}),
			want:   "token not bound to a pod"},
		{op: create, resource: "serviceaccounts/token", name: "sa",
			object: tokenFor(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "mine"}),
			want:   "without a uid"},
		{op: create, resource: "serviceaccounts/token", name: "sa",
			object: tokenFor(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "mine", UID: "old"}),
			want:   "the UID in the bound object reference (old) does not match"},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(boundTo("theirs"), "vault"),
			want: "scheduled on a different node"},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(boundTo("none")),
			want: `pods "none" not found`, notForbidden: true},
	})
}

// TestNodeMayWriteOnlyItsOwnObjectsOfOtherKinds checks what a node may write to other resources.
func TestNodeMayWriteOnlyItsOwnObjectsOfOtherKinds(t *testing.T) {
	const (
		onlyCreateOwn = "can only create ResourceSlice with the same NodeName as the requesting node"
		onlyDeleteOwn = "can only delete ResourceSlice with the same NodeName as the requesting node"

		clientSigner  = certificatesv1.KubeAPIServerClientKubeletSignerName
		servingSigner = certificatesv1.KubeletServingSignerName
	)
	checkWrites(t, []write{
		{op: create, resource: "leases.coordination.k8s.io", name: "n1", object: &coordinationv1.Lease{},
			want: `can only access leases in the "kube-node-lease" system namespace`},
		{op: create, resource: "csinodes.storage.k8s.io", name: "n1", object: &storagev1.CSINode{}},
		{op: remove, resource: "csinodes.storage.k8s.io", name: "n2", want: "can only access CSINode with the same name"},
		{op: create, resource: "certificatesigningrequests.certificates.k8s.io", name: "r",
			object: certificate(t, clientSigner, "system:node:n1")},
		{op: create, resource: "certificatesigningrequests.certificates.k8s.io", name: "r",
			object: certificate(t, servingSigner, "system:node:n2"), want: "can only create a node CSR with CN=system:node:n1"},
		{op: create, resource: "certificatesigningrequests.certificates.k8s.io", name: "r",
			object: certificate(t, "example.com/any", "any")},
		{op: create, resource: "certificatesigningrequests.certificates.k8s.io", name: "r",
			object: &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: clientSigner}},
			want:   "unable to parse csr"},
		{op: create, resource: "resourceslices.resource.k8s.io", name: "s", object: slice("n1")},
		{op: create, resource: "resourceslices.resource.k8s.io", name: "s", object: slice("n2"), want: onlyCreateOwn},
		{op: create, resource: "resourceslices.resource.k8s.io", name: "s", object: slice(""), want: onlyCreateOwn},
		{op: create, resource: "resourceslices.resource.k8s.io", name: "s", object: newerSlice("n1")},
		{op: create, resource: "resourceslices.resource.k8s.io", name: "s", object: newerSlice("n2"), want: onlyCreateOwn},
		{op: create, resource: "resourceslices.resource.k8s.io", name: "s", object: &resourcev1beta2.ResourceSlice{},
			want: onlyCreateOwn},
		{op: create, resource: "resourceslices.resource.k8s.io", name: "s", object: aNode(), want: "unexpected type *v1.Node"},
		{op: remove, resource: "resourceslices.resource.k8s.io", name: "s", old: slice("n1")},
		{op: remove, resource: "resourceslices.resource.k8s.io", name: "s", old: slice("n2"), want: onlyDeleteOwn},
		{op: remove, resource: "resourceslices.resource.k8s.io", name: "s", old: newerSlice("n2"), want: onlyDeleteOwn},
		{op: remove, resource: "resourceslices.resource.k8s.io", name: "s", want: "unexpected type <nil>"},
		{op: update, resource: "resourceslices.resource.k8s.io", name: "s", object: slice("n1"), old: slice("n1")},
		{op: create, resource: "events", name: "e", object: &corev1.Event{}},
	})
}

// TestNodeMayWriteOnlyItsOwnLease checks that a node may write only the lease with its name.
func TestNodeMayWriteOnlyItsOwnLease(t *testing.T) {
	plugin := &noderestriction.Plugin{}
	for name, allowed := range map[string]bool{"n1": true, "n2": false} {
		w := write{op: admission.Update, resource: "leases.coordination.k8s.io", name: name}
		a := w.attributes(&request.User{Name: "system:node:n1", Groups: []string{"system:nodes"}})
		a.Namespace = "kube-node-lease"
		if err := plugin.Admit(t.Context(), a); (err == nil) != allowed {
			t.Errorf("lease %s: got error %v, want admitted: %t", name, err, allowed)
		}
	}
}

// TestFeatureGatesLiftRestrictions checks that the plugin restricts neither audiences nor certificates
// if its feature gates say so.
func TestFeatureGatesLiftRestrictions(t *testing.T) {
	plugin := &noderestriction.Plugin{Objects: objects{}, Authorizer: audiences{}, AnyCertificate: true}
	for _, w := range []write{
		{op: admission.Create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(boundTo("mine"), "any", "more")},
		{
			op: admission.Create, resource: "certificatesigningrequests.certificates.k8s.io",
			object: certificate(t, certificatesv1.KubeletServingSignerName, "system:node:n2"),
		},
	} {
		if err := plugin.Admit(t.Context(), w.attributes(&request.User{Name: "system:node:n1", Groups: []string{"system:nodes"}})); err != nil {
			t.Errorf("%s: got %v, want no error", w.resource, err)
		}
	}
}
