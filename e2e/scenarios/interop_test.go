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
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"

	"binnacle/e2e/harness"
)

// envelope is the prefix of every stored protobuf object.
var envelope = []byte("k8s\x00")

// TestStoredLayout checks keys and encodings in etcd against the rules by which Kubernetes 1.33
// stores objects.
func TestStoredLayout(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	server := harness.StartServer(t, harness.WithEtcd(etcd))
	client, etcdClient := dynamic.NewForConfigOrDie(server.Config()), etcd.Client()
	createNamespace(t, server.Client(), "ns")
	for _, storedKind := range storedObjects() {
		t.Run(strings.ReplaceAll(storedKind.resource, "/", "."), func(t *testing.T) {
			o := storedKind.newObject(t)
			made, err := client.Resource(storedKind.groupVersionResource()).Namespace(o.GetNamespace()).Create(t.Context(), o,
				metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			resp, err := etcdClient.Get(t.Context(), "/registry/"+storedKind.key)
			if err != nil || len(resp.Kvs) != 1 {
				t.Fatalf("key /registry/%s: got %d values, %v; all keys: %q, want one value", storedKind.key, resp.Count, err,
					etcdKeys(t, etcdClient, o.GetName()))
			}
			harness.Eventually(t, patience, "the revision as resourceVersion", func() error {
				// The conditions of a definition are written after its creation.
				if made, err = client.Resource(storedKind.groupVersionResource()).Namespace(o.GetNamespace()).Get(t.Context(),
					o.GetName(), metav1.GetOptions{}); err != nil {
					return err
				}
				resp, err = etcdClient.Get(t.Context(), "/registry/"+storedKind.key)
				if err != nil || len(resp.Kvs) != 1 {
					return fmt.Errorf("got %d values, %v", resp.Count, err)
				}
				if got := fmt.Sprint(resp.Kvs[0].ModRevision); got != made.GetResourceVersion() {
					return fmt.Errorf("got resourceVersion %s, want the revision %s", made.GetResourceVersion(), got)
				}
				return nil
			})
			version, object := decodeStored(t, storedKind, resp.Kvs[0].Value)
			if version != storedKind.version {
				t.Errorf("got version %s, want %s", version, storedKind.version)
			}
			metadata, err := meta.Accessor(object)
			if err != nil {
				t.Fatal(err)
			}
			if metadata.GetUID() != made.GetUID() || metadata.GetName() != o.GetName() || metadata.GetNamespace() != o.GetNamespace() {
				t.Errorf("got %s/%s %s, want %s/%s %s", metadata.GetNamespace(), metadata.GetName(), metadata.GetUID(),
					o.GetNamespace(), o.GetName(), made.GetUID())
			}
			if metadata.GetResourceVersion() != "" {
				t.Errorf("stored resourceVersion: got %q, want none", metadata.GetResourceVersion())
			}
		})
	}
}

func etcdKeys(t *testing.T, etcdClient *clientv3.Client, name string) (found []string) {
	t.Helper()
	resp, err := etcdClient.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, stored := range resp.Kvs {
		if strings.HasSuffix(string(stored.Key), "/"+name) {
			found = append(found, string(stored.Key))
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
			t.Fatalf("got %.60q, %v, want JSON", value, err)
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
	etcdClient := etcd.Client()
	put := func(key string, object runtime.Object) {
		t.Helper()
		var b bytes.Buffer
		if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &b); err != nil {
			t.Fatal(err)
		}
		if _, err := etcdClient.Put(t.Context(), "/registry/"+key, b.String()); err != nil {
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
		Spec: networkingv1beta1.IPAddressSpec{ParentRef: &networkingv1beta1.ParentReference{
			Resource: "services",
			Name:     "s",
		}},
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
			if err != nil || a.Spec.ParentRef == nil || a.Spec.ParentRef.Name != "s" ||
				name == "JSON" && a.APIVersion != "" && a.APIVersion != "networking.k8s.io/v1" {
				t.Errorf("address: got %v, %v, want version v1 with the parent s", a, err)
			}
		})
	}
	client := server.Client()
	events, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=during"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	put("configmaps/default/during", &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "during", Namespace: "default", UID: "u-4"},
	})
	ctx, cancel := context.WithTimeout(t.Context(), watchLimit)
	defer cancel()
	select {
	case e := <-events.ResultChan():
		if c, ok := e.Object.(*corev1.ConfigMap); !ok || c.UID != types.UID("u-4") {
			t.Errorf("watch: got %v, want a ConfigMap with UID u-4", e)
		}
	case <-ctx.Done():
		t.Error("object written directly to etcd: got no event, want one")
	}
	// The API can change the object.
	c, err := client.CoreV1().ConfigMaps("default").Patch(t.Context(), "during", types.MergePatchType,
		[]byte(`{"data":{"x":"y"}}`), metav1.PatchOptions{})
	if err != nil || c.Data["x"] != "y" || c.UID != "u-4" {
		t.Errorf("patch: got %v, %v, want x=y and UID u-4", c, err)
	}
}
