package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"binnacle/e2e/harness"
)

// envelope is the prefix of every stored protobuf object.
var envelope = []byte("k8s\x00")

// storedKind is an object and where Kubernetes 1.33 stores it.
type storedKind struct {
	manifest string
	resource string // "group/version/resource", no group for core
	key      string // below /registry/
	version  string // group version of the stored form
	json     bool   // not protobuf: kinds of servers that are built in
}

// storedObjects has objects of all kinds. Some are stored under historical names or in a version
// other than the served one. Namespaced objects are in the namespace "ns".
func storedObjects() []storedKind {
	return []storedKind{
		{resource: "v1/namespaces", key: "namespaces/o", version: "v1", manifest: `{kind: Namespace}`},
		{resource: "v1/nodes", key: "minions/o", version: "v1", manifest: `{kind: Node}`},
		{resource: "v1/configmaps", key: "configmaps/ns/o", version: "v1", manifest: `{kind: ConfigMap, data: {a: b}}`},
		{resource: "v1/secrets", key: "secrets/ns/o", version: "v1", manifest: `{kind: Secret, stringData: {a: b}}`},
		{resource: "v1/pods", key: "pods/ns/o", version: "v1", manifest: `{kind: Pod, spec: {containers: [{name: c, image: i}]}}`},
		{resource: "v1/services", key: "services/specs/ns/o", version: "v1", manifest: `{kind: Service, spec: {clusterIP: None, ports: [{port: 80}]}}`},
		{resource: "v1/endpoints", key: "services/endpoints/ns/o", version: "v1", manifest: `{kind: Endpoints}`},
		{resource: "v1/replicationcontrollers", key: "controllers/ns/o", version: "v1", manifest: `{kind: ReplicationController, spec: {selector: {a: b}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`},
		{resource: "v1/persistentvolumes", key: "persistentvolumes/o", version: "v1", manifest: `{kind: PersistentVolume, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /x}}}`},
		{resource: "v1/persistentvolumeclaims", key: "persistentvolumeclaims/ns/o", version: "v1", manifest: `{kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`},
		{resource: "v1/podtemplates", key: "podtemplates/ns/o", version: "v1", manifest: `{kind: PodTemplate, template: {spec: {containers: [{name: c, image: i}]}}}`},
		{resource: "v1/limitranges", key: "limitranges/ns/o", version: "v1", manifest: `{kind: LimitRange, spec: {limits: [{type: Pod, max: {cpu: "1"}}]}}`},
		{resource: "v1/resourcequotas", key: "resourcequotas/ns/o", version: "v1", manifest: `{kind: ResourceQuota, spec: {hard: {secrets: "100"}}}`},
		{resource: "v1/serviceaccounts", key: "serviceaccounts/ns/o", version: "v1", manifest: `{kind: ServiceAccount}`},
		{resource: "v1/events", key: "events/ns/o", version: "v1", manifest: `{kind: Event, involvedObject: {namespace: ns, name: x}, reason: r}`},
		{resource: "events.k8s.io/v1/events", key: "events/ns/p", version: "v1", manifest: `{kind: Event, metadata: {name: p}, eventTime: "2025-01-01T00:00:00.000000Z", reportingController: c.example.org/x, reportingInstance: i, action: a, reason: r, type: Normal, regarding: {namespace: ns, name: x}}`},
		{resource: "apps/v1/deployments", key: "deployments/ns/o", version: "apps/v1", manifest: `{kind: Deployment, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`},
		{resource: "apps/v1/replicasets", key: "replicasets/ns/o", version: "apps/v1", manifest: `{kind: ReplicaSet, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`},
		{resource: "apps/v1/statefulsets", key: "statefulsets/ns/o", version: "apps/v1", manifest: `{kind: StatefulSet, spec: {serviceName: s, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`},
		{resource: "apps/v1/daemonsets", key: "daemonsets/ns/o", version: "apps/v1", manifest: `{kind: DaemonSet, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}`},
		{resource: "apps/v1/controllerrevisions", key: "controllerrevisions/ns/o", version: "apps/v1", manifest: `{kind: ControllerRevision, revision: 1, data: {a: b}}`},
		{resource: "batch/v1/jobs", key: "jobs/ns/o", version: "batch/v1", manifest: `{kind: Job, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`},
		{resource: "batch/v1/cronjobs", key: "cronjobs/ns/o", version: "batch/v1", manifest: `{kind: CronJob, spec: {schedule: "@daily", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}}}`},
		{resource: "autoscaling/v1/horizontalpodautoscalers", key: "horizontalpodautoscalers/ns/o", version: "autoscaling/v2", manifest: `{kind: HorizontalPodAutoscaler, spec: {maxReplicas: 3, targetCPUUtilizationPercentage: 50, scaleTargetRef: {kind: Deployment, name: d, apiVersion: apps/v1}}}`},
		{resource: "policy/v1/poddisruptionbudgets", key: "poddisruptionbudgets/ns/o", version: "policy/v1", manifest: `{kind: PodDisruptionBudget, spec: {minAvailable: 1, selector: {matchLabels: {a: b}}}}`},
		{resource: "networking.k8s.io/v1/ingresses", key: "ingress/ns/o", version: "networking.k8s.io/v1", manifest: `{kind: Ingress, spec: {defaultBackend: {service: {name: s, port: {number: 80}}}}}`},
		{resource: "networking.k8s.io/v1/ingressclasses", key: "ingressclasses/o", version: "networking.k8s.io/v1", manifest: `{kind: IngressClass, spec: {controller: example.org/c}}`},
		{resource: "networking.k8s.io/v1/networkpolicies", key: "networkpolicies/ns/o", version: "networking.k8s.io/v1", manifest: `{kind: NetworkPolicy, spec: {podSelector: {}}}`},
		{resource: "networking.k8s.io/v1/ipaddresses", key: "ipaddresses/10.9.8.7", version: "networking.k8s.io/v1beta1", manifest: `{kind: IPAddress, metadata: {name: 10.9.8.7}, spec: {parentRef: {resource: services, namespace: ns, name: o}}}`},
		{resource: "networking.k8s.io/v1/servicecidrs", key: "servicecidrs/o", version: "networking.k8s.io/v1beta1", manifest: `{kind: ServiceCIDR, spec: {cidrs: [10.9.0.0/16]}}`},
		{resource: "rbac.authorization.k8s.io/v1/roles", key: "roles/ns/o", version: "rbac.authorization.k8s.io/v1", manifest: `{kind: Role, rules: []}`},
		{resource: "rbac.authorization.k8s.io/v1/rolebindings", key: "rolebindings/ns/o", version: "rbac.authorization.k8s.io/v1", manifest: `{kind: RoleBinding, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}}`},
		{resource: "rbac.authorization.k8s.io/v1/clusterroles", key: "clusterroles/o", version: "rbac.authorization.k8s.io/v1", manifest: `{kind: ClusterRole, rules: []}`},
		{resource: "rbac.authorization.k8s.io/v1/clusterrolebindings", key: "clusterrolebindings/o", version: "rbac.authorization.k8s.io/v1", manifest: `{kind: ClusterRoleBinding, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}}`},
		{resource: "storage.k8s.io/v1/storageclasses", key: "storageclasses/o", version: "storage.k8s.io/v1", manifest: `{kind: StorageClass, provisioner: example.org/p}`},
		{resource: "storage.k8s.io/v1/csidrivers", key: "csidrivers/o", version: "storage.k8s.io/v1", manifest: `{kind: CSIDriver, spec: {}}`},
		{resource: "storage.k8s.io/v1/csinodes", key: "csinodes/o", version: "storage.k8s.io/v1", manifest: `{kind: CSINode, spec: {drivers: []}}`},
		{resource: "storage.k8s.io/v1/volumeattachments", key: "volumeattachments/o", version: "storage.k8s.io/v1", manifest: `{kind: VolumeAttachment, spec: {attacher: a, nodeName: worker, source: {persistentVolumeName: v}}}`},
		{resource: "storage.k8s.io/v1/csistoragecapacities", key: "csistoragecapacities/ns/o", version: "storage.k8s.io/v1", manifest: `{kind: CSIStorageCapacity, storageClassName: c}`},
		{resource: "scheduling.k8s.io/v1/priorityclasses", key: "priorityclasses/o", version: "scheduling.k8s.io/v1", manifest: `{kind: PriorityClass, value: 7}`},
		{resource: "coordination.k8s.io/v1/leases", key: "leases/ns/o", version: "coordination.k8s.io/v1", manifest: `{kind: Lease, spec: {holderIdentity: h}}`},
		{resource: "node.k8s.io/v1/runtimeclasses", key: "runtimeclasses/o", version: "node.k8s.io/v1", manifest: `{kind: RuntimeClass, handler: h}`},
		{resource: "discovery.k8s.io/v1/endpointslices", key: "endpointslices/ns/o", version: "discovery.k8s.io/v1", manifest: `{kind: EndpointSlice, addressType: IPv4, endpoints: []}`},
		{resource: "flowcontrol.apiserver.k8s.io/v1/flowschemas", key: "flowschemas/o", version: "flowcontrol.apiserver.k8s.io/v1", manifest: `{kind: FlowSchema, spec: {matchingPrecedence: 900, priorityLevelConfiguration: {name: o}}}`},
		{resource: "flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", key: "prioritylevelconfigurations/o", version: "flowcontrol.apiserver.k8s.io/v1", manifest: `{kind: PriorityLevelConfiguration, spec: {type: Limited, limited: {limitResponse: {type: Reject}}}}`},
		{resource: "admissionregistration.k8s.io/v1/validatingadmissionpolicies", key: "validatingadmissionpolicies/o", version: "admissionregistration.k8s.io/v1", manifest: `{kind: ValidatingAdmissionPolicy, spec: {matchConstraints: {resourceRules: [{apiGroups: [example.org], apiVersions: [v1], resources: [things], operations: [CREATE]}]}, validations: [{expression: "true"}]}}`},
		{resource: "apiregistration.k8s.io/v1/apiservices", key: "apiregistration.k8s.io/apiservices/v9.e2e.example.org", version: "apiregistration.k8s.io/v1", json: true, manifest: `{kind: APIService, metadata: {name: v9.e2e.example.org}, spec: {group: e2e.example.org, version: v9, groupPriorityMinimum: 100, versionPriority: 10, service: {namespace: ns, name: s}, insecureSkipTLSVerify: true}}`},
		{resource: "apiextensions.k8s.io/v1/customresourcedefinitions", key: "apiextensions.k8s.io/customresourcedefinitions/things.e2e.example.org", version: "apiextensions.k8s.io/v1beta1", json: true, manifest: `{kind: CustomResourceDefinition, metadata: {name: things.e2e.example.org}, spec: {group: e2e.example.org, scope: Namespaced, names: {plural: things, kind: Thing}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`},
	}
}

func (s storedKind) groupVersionResource() schema.GroupVersionResource {
	parts := strings.Split(s.resource, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
}

// newObject returns the manifest with the common metadata.
func (s storedKind) newObject(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(s.manifest), &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetAPIVersion(s.groupVersionResource().GroupVersion().String())
	if o.GetName() == "" {
		o.SetName("o")
	}
	if strings.Contains(s.key, "/ns/") {
		o.SetNamespace("ns")
	}
	return o
}

// TestStoredLayout checks keys and encodings in etcd against the rules by which Kubernetes 1.33
// stores objects.
func TestStoredLayout(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	server := harness.StartServer(t, harness.WithEtcd(etcd))
	client, kv := dynamic.NewForConfigOrDie(server.Config()), etcd.Client()
	createNamespace(t, server.Client(), "ns")
	for _, s := range storedObjects() {
		t.Run(strings.ReplaceAll(s.resource, "/", "."), func(t *testing.T) {
			o := s.newObject(t)
			made, err := client.Resource(s.groupVersionResource()).Namespace(o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			resp, err := kv.Get(t.Context(), "/registry/"+s.key)
			if err != nil || len(resp.Kvs) != 1 {
				t.Fatalf("key /registry/%s: got %d values, %v; all keys: %q, want one value", s.key, resp.Count, err, etcdKeys(t, kv, o.GetName()))
			}
			harness.Eventually(t, patience, "the revision as resourceVersion", func() error {
				// The conditions of a definition are written after its creation.
				if made, err = client.Resource(s.groupVersionResource()).Namespace(o.GetNamespace()).Get(t.Context(), o.GetName(), metav1.GetOptions{}); err != nil {
					return err
				}
				resp, err = kv.Get(t.Context(), "/registry/"+s.key)
				if err != nil || len(resp.Kvs) != 1 {
					return fmt.Errorf("got %d values, %v", resp.Count, err)
				}
				if got := fmt.Sprint(resp.Kvs[0].ModRevision); got != made.GetResourceVersion() {
					return fmt.Errorf("resourceVersion is %s, but the revision is %s", made.GetResourceVersion(), got)
				}
				return nil
			})
			version, object := decodeStored(t, s, resp.Kvs[0].Value)
			if version != s.version {
				t.Errorf("want version %s, got %s", s.version, version)
			}
			m, err := meta.Accessor(object)
			if err != nil {
				t.Fatal(err)
			}
			if m.GetUID() != made.GetUID() || m.GetName() != o.GetName() || m.GetNamespace() != o.GetNamespace() {
				t.Errorf("want %s/%s %s, got %s/%s %s", o.GetNamespace(), o.GetName(), made.GetUID(), m.GetNamespace(), m.GetName(), m.GetUID())
			}
			if m.GetResourceVersion() != "" {
				t.Errorf("stored resourceVersion: got %q, want none", m.GetResourceVersion())
			}
		})
	}
}

func etcdKeys(t *testing.T, kv *clientv3.Client, name string) (found []string) {
	t.Helper()
	resp, err := kv.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range resp.Kvs {
		if strings.HasSuffix(string(e.Key), "/"+name) {
			found = append(found, string(e.Key))
		}
	}
	return found
}

// decodeStored returns the version of a stored value, and the object.
func decodeStored(t *testing.T, s storedKind, value []byte) (string, runtime.Object) {
	t.Helper()
	if s.json {
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(value, &o.Object); err != nil {
			t.Fatalf("want JSON: %v: %.60q", err, value)
		}
		return o.GetAPIVersion(), o
	}
	body, ok := bytes.CutPrefix(value, envelope)
	if !ok {
		t.Fatalf("got value %.60q, want one in the envelope of protobuf", value)
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(body); err != nil {
		t.Fatal(err)
	}
	object, _, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(value, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return unknown.APIVersion, object
}

// TestForeignObjects writes objects into etcd like Kubernetes 1.33, before the server starts and
// while it runs, and reads them through the API.
func TestForeignObjects(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	kv := etcd.Client()
	put := func(key string, object runtime.Object) {
		t.Helper()
		var b bytes.Buffer
		if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &b); err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Put(t.Context(), "/registry/"+key, b.String()); err != nil {
			t.Fatal(err)
		}
	}
	put("configmaps/default/before", &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "before", Namespace: "default", UID: "u-1", Labels: map[string]string{"a": "b"}},
		Data:       map[string]string{"k": "v"},
	})
	put("minions/node", &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "u-2"},
		Spec:       corev1.NodeSpec{Unschedulable: true},
	})
	put("ipaddresses/10.9.8.7", &networkingv1beta1.IPAddress{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1beta1", Kind: "IPAddress"},
		ObjectMeta: metav1.ObjectMeta{Name: "10.9.8.7", UID: "u-3"},
		Spec:       networkingv1beta1.IPAddressSpec{ParentRef: &networkingv1beta1.ParentReference{Resource: "services", Name: "s"}},
	})
	server := harness.StartServer(t, harness.WithEtcd(etcd))
	for name, config := range clientConfigs(server) {
		t.Run(name, func(t *testing.T) {
			client := harness.ClientFor(t, config)
			c, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "before", metav1.GetOptions{})
			if err != nil || c.Data["k"] != "v" || c.UID != "u-1" || c.ResourceVersion == "" {
				t.Errorf("config map: got %v, %v, want k=v, UID u-1 and a resource version", c, err)
			}
			n, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{FieldSelector: "spec.unschedulable=true"})
			if err != nil || len(n.Items) != 1 || n.Items[0].Name != "node" {
				t.Errorf("nodes: got %v, %v, want only the node node", n, err)
			}
			a, err := client.NetworkingV1().IPAddresses().Get(t.Context(), "10.9.8.7", metav1.GetOptions{})
			if err != nil || a.Spec.ParentRef == nil || a.Spec.ParentRef.Name != "s" || name == "JSON" && a.APIVersion != "" && a.APIVersion != "networking.k8s.io/v1" {
				t.Errorf("address: got %v, %v", a, err)
			}
		})
	}
	client := server.Client()
	w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=during"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	put("configmaps/default/during", &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "during", Namespace: "default", UID: "u-4"},
	})
	ctx, cancel := context.WithTimeout(t.Context(), watchLimit)
	defer cancel()
	select {
	case e := <-w.ResultChan():
		if c, ok := e.Object.(*corev1.ConfigMap); !ok || c.UID != types.UID("u-4") {
			t.Errorf("watch: got %v", e)
		}
	case <-ctx.Done():
		t.Error("object written directly to etcd: got no event, want one")
	}
	// The API can change the object.
	c, err := client.CoreV1().ConfigMaps("default").Patch(t.Context(), "during", types.MergePatchType, []byte(`{"data":{"x":"y"}}`), metav1.PatchOptions{})
	if err != nil || c.Data["x"] != "y" || c.UID != "u-4" {
		t.Errorf("patch: got %v, %v, want x=y and UID u-4", c, err)
	}
}
