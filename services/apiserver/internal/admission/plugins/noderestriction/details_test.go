package noderestriction_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/noderestriction"
	"binnacle/services/apiserver/internal/request"
)

// checkWritesOf checks the result of each write of a node.
func checkWritesOf(t *testing.T, node string, plugin *noderestriction.Plugin, writes []write) {
	t.Helper()
	for _, w := range writes {
		err := plugin.Admit(t.Context(), w.attributes(&request.User{Name: "system:node:" + node, Groups: []string{"system:nodes"}}))
		if (err == nil) != (w.want == "") || err != nil && !strings.Contains(err.Error(), w.want) {
			t.Errorf("%s %s %q by node %s: got error %v, want one that contains %q, or none if that is empty",
				w.op, w.resource, w.name, node, err, w.want)
		}
	}
}

// labeled returns node n1 with a label.
func labeled(key, value string) *corev1.Node {
	n := aNode()
	n.Labels[key] = value
	return n
}

// TestUnusualWritesAreAdmittedOrRejected checks writes with unexpected types and operations, labels
// without a prefix, and owner references and bindings that are almost valid.
func TestUnusualWritesAreAdmittedOrRejected(t *testing.T) {
	const requests = "certificatesigningrequests.certificates.k8s.io"
	configured := aNode()
	configured.Spec.ConfigSource = &corev1.NodeConfigSource{}
	ofOtherNode := certificate(t, certificatesv1.KubeletServingSignerName, "system:node:n2")
	unchanged := claim(func(*corev1.PersistentVolumeClaim) {})
	owner := func(change func(*metav1.OwnerReference)) *corev1.Pod {
		return pod(func(p *corev1.Pod) { change(&p.OwnerReferences[0]) })
	}
	otherVersion, nameless := *boundTo("mine"), *boundTo("mine")
	otherVersion.APIVersion, nameless.Name = "v2", ""
	checkWritesOf(t, "n1", &noderestriction.Plugin{Objects: objects{}, Authorizer: audiences{}, Audiences: true}, []write{
		{op: remove, resource: "nodes", name: "n1"},
		{op: create, resource: "nodes", name: "n1", object: pod(), want: "unexpected type"},
		{op: update, resource: "nodes", name: "n1", object: aNode(), old: pod(), want: "unexpected type"},
		{op: update, resource: "nodes", name: "n1", object: configured, old: configured},
		{
			op:       create,
			resource: "nodes",
			name:     "n1",
			object:   labeled("kubernetes.io/role", ""),
			want:     "not allowed to set the following labels",
		},
		{
			op:       update,
			resource: "nodes",
			name:     "n1",
			object:   labeled("kubernetes.io/role", ""),
			old:      aNode(),
			want:     "not allowed to modify labels",
		},
		{
			op: update, resource: "nodes", name: "n1", object: labeled("kubernetes.io/role", "a"),
			old: labeled("kubernetes.io/role", "b"), want: "not allowed to modify labels",
		},
		{op: create, resource: "nodes", name: "n1", object: labeled("kubernetes.io", "a")},
		{op: create, resource: requests, object: aNode(), want: "unexpected type"},
		{op: update, resource: requests, object: ofOtherNode, old: ofOtherNode},

		{
			op: create, resource: "pods", name: "p",
			object: owner(func(o *metav1.OwnerReference) { o.APIVersion = "v2" }),
			want:   "with an owner reference set to itself",
		},
		{
			op: create, resource: "pods", name: "p",
			object: owner(func(o *metav1.OwnerReference) { o.Controller = ptr(false) }),
			want:   "with a controller owner reference",
		},
		{
			op:       create,
			resource: "pods",
			name:     "p",
			object:   owner(func(o *metav1.OwnerReference) { o.BlockOwnerDeletion = ptr(false) }),
		},
		{op: create, resource: "pods/eviction", name: "mine", object: aNode(), want: "unexpected type"},
		{op: create, resource: "pods/status", name: "p", object: pod(), want: "unexpected operation"},
		{op: update, resource: "pods/status", name: "p", object: aNode(), old: pod(), want: "unexpected type"},
		{op: update, resource: "pods/status", name: "p", object: pod(), old: aNode(), want: "unexpected type"},
		{op: create, resource: "persistentvolumeclaims/status", name: "c", object: unchanged, want: "unexpected operation"},
		{op: update, resource: "persistentvolumeclaims/status", name: "c", object: aNode(), old: unchanged, want: "unexpected type"},
		{op: update, resource: "persistentvolumeclaims/status", name: "c", object: unchanged, old: aNode(), want: "unexpected type"},

		{op: update, resource: "serviceaccounts/token", name: "sa", object: tokenFor(nil)},
		{op: create, resource: "serviceaccounts", name: "sa", object: &corev1.ServiceAccount{}},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: aNode(), want: "unexpected type"},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(&otherVersion, "vault"), want: "not bound to a pod"},
		{op: create, resource: "serviceaccounts/token", name: "sa", object: tokenFor(&nameless, "vault"), want: "not bound to a pod"},
	})
	checkWritesOf(t, "n3", &noderestriction.Plugin{Objects: objects{}, Authorizer: audiences{}}, []write{
		{op: create, resource: "pods", name: "p", object: pod(func(p *corev1.Pod) {
			p.Spec.NodeName, p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = "n3", "n3", ""
		}), want: `nodes "n3" not found`},
	})
}

// objectsWithVolumes is a lister of objects whose pods have the volumes podVolumes. Three lookups
// fail: of the claim "broken", of the volume of the claim "lost", and of the driver of the claim
// "driverless".
type objectsWithVolumes struct {
	objects
	podVolumes []corev1.Volume
}

func (o objectsWithVolumes) Pod(ctx context.Context, ns, name string) (*corev1.Pod, error) {
	pod, err := o.objects.Pod(ctx, ns, name)
	if err == nil {
		pod.Spec.Volumes = o.podVolumes
	}
	return pod, err
}

func (o objectsWithVolumes) Claim(ctx context.Context, ns, name string) (*corev1.PersistentVolumeClaim, error) {
	if name == "broken" {
		return nil, errBroken
	}
	return o.objects.Claim(ctx, ns, name)
}

func (o objectsWithVolumes) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	switch name {
	case "of-lost":
		return nil, errBroken
	case "of-plain":
		return &corev1.PersistentVolume{}, nil
	case "of-older":
		v := &corev1.PersistentVolume{}
		v.Spec.Cinder = &corev1.CinderPersistentVolumeSource{}
		return v, nil
	}
	return o.objects.Volume(ctx, name)
}

func (o objectsWithVolumes) Driver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	switch name {
	case "driver-of-driverless":
		return nil, errBroken
	case "disk.csi.azure.com":
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: "storage.k8s.io", Resource: "csidrivers"}, name)
	}
	return o.objects.Driver(ctx, name)
}

// failingAuthorizer returns an error for all requests.
type failingAuthorizer struct{}

func (failingAuthorizer) Authorize(context.Context, *authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.NoOpinion, "", errors.New("no answer")
}

// TestNodeMayRequestAudiencesOfPodVolumes checks that a node may request the audiences of all
// volumes that a pod mounts. A volume that cannot be resolved grants nothing, and does not affect
// others.
func TestNodeMayRequestAudiencesOfPodVolumes(t *testing.T) {
	ofClaim := func(name string) corev1.Volume {
		return corev1.Volume{
			Name:         name,
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}},
		}
	}
	ephemeral := func(template *corev1.PersistentVolumeClaimTemplate) corev1.Volume {
		return corev1.Volume{
			Name:         "v",
			VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template}},
		}
	}
	projected := corev1.Volume{
		Name: "p",
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{}}, {ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault"}},
		}}},
	}
	const notAuthorized = "is not authorized to request tokens for this audience"
	for name, test := range map[string]struct {
		volumes    []corev1.Volume
		audience   string
		want       string                // part of the error; empty when admitted
		authorizer authorizer.Authorizer // default: audiences
	}{
		"projected token":                      {volumes: []corev1.Volume{projected}, audience: "vault"},
		"projected token for another audience": {volumes: []corev1.Volume{projected}, audience: "other", want: notAuthorized},
		"driver of an ephemeral volume": {
			volumes:  []corev1.Volume{ephemeral(&corev1.PersistentVolumeClaimTemplate{})},
			audience: "audience-of-driver-of-mine-v",
		},
		"ephemeral volume without template": {volumes: []corev1.Volume{ephemeral(nil)}, audience: "audience-of-driver-of-mine-v", want: notAuthorized},
		"driver of a claim":                 {volumes: []corev1.Volume{ofClaim("c")}, audience: "audience-of-driver-of-c"},
		"claim without a driver":            {volumes: []corev1.Volume{ofClaim("plain")}, audience: "a", want: notAuthorized},
		"claim cannot be read": {
			volumes: []corev1.Volume{ofClaim("broken")}, audience: "a",
			want: `error validating audience "a": the cache is not loaded`,
		},
		"volume of the claim cannot be read": {
			volumes: []corev1.Volume{ofClaim("lost")}, audience: "a",
			want: `error validating audience "a": the cache is not loaded`,
		},
		"driver of the claim cannot be read": {
			volumes: []corev1.Volume{ofClaim("driverless")}, audience: "a",
			want: `error validating audience "a": the cache is not loaded`,
		},
		"in-tree volume with a CSI driver": {
			volumes:  []corev1.Volume{{VolumeSource: corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{}}}},
			audience: "audience-of-ebs.csi.aws.com",
		},
		"claim to an in-tree volume with a CSI driver": {volumes: []corev1.Volume{ofClaim("older")}, audience: "audience-of-cinder.csi.openstack.org"},
		"in-tree volume whose CSI driver does not exist": {
			volumes:  []corev1.Volume{{VolumeSource: corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{}}}},
			audience: "a", want: notAuthorized,
		},
		"projected token beside a claim that cannot be read": {volumes: []corev1.Volume{ofClaim("broken"), projected}, audience: "vault"},
		"authorizer fails": {
			audience: "a", authorizer: failingAuthorizer{},
			want: "error authorizing system:node:n1 to request tokens for this audience: no answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.authorizer == nil {
				test.authorizer = audiences{}
			}
			plugin := &noderestriction.Plugin{
				Objects:    objectsWithVolumes{podVolumes: test.volumes},
				Authorizer: test.authorizer,
				Audiences:  true,
			}
			checkWritesOf(t, "n1", plugin, []write{
				{
					op:       admission.Create,
					resource: "serviceaccounts/token",
					name:     "sa",
					object:   tokenFor(boundTo("mine"), test.audience),
					want:     test.want,
				},
			})
		})
	}
}
