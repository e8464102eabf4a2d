package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// templates is the number of pods that are created by requests. The others are copies.
	templates = 50
	// growBatch is the number of pods per etcd transaction. etcd truncates its log after a number
	// of entries of any size. A start must not read more log than after writes by requests.
	growBatch = 10
	growWait  = 5 * time.Minute
)

// addPods adds the pods with the numbers from up to, but not including, to. It returns the size of
// all stored pods in bytes.
func (l *load) addPods(client *http.Client, endpoint string, from, to int) (stored int64, err error) {
	for i := from / perNamespace; i < (to+perNamespace-1)/perNamespace; i++ {
		if err := l.create(client, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":"grown-%d"}}`, i)); err != nil {
			return 0, err
		}
	}
	if stored, err = writePodsToEtcd(endpoint, from, to); err != nil {
		return 0, err
	}
	return stored, l.waitForPods(client, to)
}

// writePodsToEtcd writes pods directly to etcd, because 300,000 creates would take an hour.
func writePodsToEtcd(endpoint string, from, to int) (stored int64, err error) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		return 0, err
	}
	defer etcd.Close()
	ctx, cancel := context.WithTimeout(context.Background(), growWait)
	defer cancel()
	made, err := etcd.Get(ctx, "/registry/pods/bench-", clientv3.WithPrefix())
	if err != nil {
		return 0, err
	}
	if len(made.Kvs) != templates {
		return 0, fmt.Errorf("got %d stored templates, want %d", len(made.Kvs), templates)
	}
	codec := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	pods := make([]*corev1.Pod, templates)
	for i, kv := range made.Kvs {
		pods[i] = &corev1.Pod{}
		if _, _, err := codec.Decode(kv.Value, nil, pods[i]); err != nil {
			return 0, err
		}
		pods[i].APIVersion, pods[i].Kind = "v1", "Pod"
	}
	r := rand.New(rand.NewSource(int64(from)))
	var batch []clientv3.Op
	var size int64
	for i := from; i < to; i++ {
		pod := newGrownPod(pods[i%templates], r, i, from, to)
		var buf bytes.Buffer
		if err := codec.Encode(pod, &buf); err != nil {
			return 0, err
		}
		size += int64(buf.Len())
		batch = append(batch, clientv3.OpPut("/registry/pods/"+pod.Namespace+"/"+pod.Name, buf.String()))
		if len(batch) == growBatch || i == to-1 {
			if _, err := etcd.Txn(ctx).Then(batch...).Commit(); err != nil {
				return 0, err
			}
			batch = batch[:0]
		}
	}
	return size / int64(to-from) * int64(to), nil
}

// newGrownPod returns the i-th pod. Pods with numbers between from and to have other nodes and
// labels than earlier ones, so that a node or label always has the same number of pods.
func newGrownPod(like *corev1.Pod, r *rand.Rand, i, from, to int) *corev1.Pod {
	pod := like.DeepCopy()
	pod.Name, pod.Namespace = fmt.Sprintf("pod-%07d", i), fmt.Sprintf("grown-%d", i/perNamespace)
	pod.UID = types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", r.Uint32(), i))
	pod.Spec.NodeName = fmt.Sprintf("grown-%d", from/perNode+i%((to-from)/perNode))
	pod.Labels["app"] = fmt.Sprintf("grown-%d", from/perApp+i/7%((to-from)/perApp))
	pod.Labels["pod-template-hash"] = fmt.Sprintf("%x", r.Int31())
	pod.Annotations["checksum/config"] = fmt.Sprintf("%x%x", r.Int63(), r.Int63())
	for e := range pod.Spec.Containers[0].Env {
		pod.Spec.Containers[0].Env[e].Value = fmt.Sprintf("value-%x-%x", r.Int63(), r.Int63())
	}
	return pod
}

// waitForPods waits until the server lists n added pods.
func (l *load) waitForPods(c *http.Client, wanted int) error {
	for start := time.Now(); ; time.Sleep(200 * time.Millisecond) { // polling interval
		_, body, err := l.request(c, http.MethodGet, "/api/v1/pods?limit=1", "", nil,
			"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
		if err != nil {
			return err
		}
		var list struct {
			Metadata struct{ RemainingItemCount int } `json:"metadata"`
		}
		if err := json.Unmarshal(body, &list); err != nil {
			return err
		}
		if list.Metadata.RemainingItemCount+1 >= wanted+templates {
			return nil
		}
		if time.Since(start) > growWait {
			return fmt.Errorf("got %d pods, want %d", list.Metadata.RemainingItemCount+1, wanted+templates)
		}
	}
}

// discardResponse sends a GET and discards the body.
func (l *load) discardResponse(client *http.Client, path, accept string) error {
	req, err := http.NewRequest(http.MethodGet, l.server+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
