package scenarios

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"

	"binnacle/e2e/harness"
)

// TestClientsGetGuaranteesInEachFormat tests the API's guarantees for programs through client-go,
// in each wire format.
func TestClientsGetGuaranteesInEachFormat(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	admin := server.Client()
	for format, config := range clientConfigs(server) {
		for name, test := range map[string]func(*testing.T, subject){
			"compare-and-swap": checkCompareAndSwap,
			"delete-options":   checkDeleteOptions,
			"finalizers":       checkFinalizerSemantics,
			"collection":       checkDeleteCollection,
			"dry-run":          checkDryRunSemantics,
			"generate-name":    checkGenerateName,
			"pages":            checkPages,
			"selectors":        checkSelectors,
			"watch":            checkWatchChanges,
			"bookmarks":        checkBookmarks,
			"versions":         checkListVersions,
			"metadata":         checkMetadataOnly,
		} {
			t.Run(format+"/"+name, func(t *testing.T) {
				t.Parallel()
				client := harness.ClientFor(t, config)
				ns := fmt.Sprintf("%s-%s", name, map[string]string{"JSON": "j", "protobuf": "p"}[format])
				createNamespace(t, admin, ns)
				test(t, subject{config: config, client: client, namespace: ns, maps: client.CoreV1().ConfigMaps(ns)})
			})
		}
	}
}

// subject is a client with its own namespace.
type subject struct {
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
	maps      typedcorev1.ConfigMapInterface
}

// create creates a ConfigMap.
func (s subject) create(t *testing.T, c *corev1.ConfigMap) *corev1.ConfigMap {
	t.Helper()
	made, err := s.maps.Create(t.Context(), c, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// checkCompareAndSwap counts with many writers. No addition may be lost.
func checkCompareAndSwap(t *testing.T, client subject) {
	const writers, additions = 5, 8
	old := client.create(t, configMap("counter", "0"))
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range additions {
				err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error { return client.increment(t.Context()) })
				for apierrors.IsConflict(err) {
					err = client.increment(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	c, err := client.maps.Get(t.Context(), "counter", metav1.GetOptions{})
	if err != nil || c.Data["value"] != strconv.Itoa(writers*additions) {
		t.Errorf("got %v, %v, want %d", c.Data, err, writers*additions)
	}
	if _, err := client.maps.Update(t.Context(), old, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of an old version: got %v, want Conflict", err)
	}
	old.ResourceVersion = ""
	if _, err := client.maps.Update(t.Context(), old, metav1.UpdateOptions{}); err != nil {
		t.Errorf("update without a version: got error %v, want none", err)
	}
	if _, err := client.maps.Create(t.Context(), configMap("counter", "0"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second create: got %v, want AlreadyExists", err)
	}
	if _, err := client.maps.Update(t.Context(), configMap("absent", "0"), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("update of a missing object: got %v, want NotFound", err)
	}
}

func (s subject) increment(ctx context.Context) error {
	configMap, err := s.maps.Get(ctx, "counter", metav1.GetOptions{})
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(configMap.Data["value"])
	if err != nil {
		return err
	}
	configMap.Data["value"] = strconv.Itoa(n + 1)
	_, err = s.maps.Update(ctx, configMap, metav1.UpdateOptions{})
	return err
}

// checkDeleteOptions checks preconditions and propagation policies of deletions.
func checkDeleteOptions(t *testing.T, client subject) {
	ctx, created := t.Context(), client.create(t, configMap("a", "1"))
	wrongUID, wrongVersion := types.UID("absent"), "1"
	for name, preconditions := range map[string]*metav1.Preconditions{
		"uid":                             {UID: &wrongUID},
		"version":                         {ResourceVersion: &wrongVersion},
		"version though the uid is right": {UID: &created.UID, ResourceVersion: &wrongVersion},
	} {
		if err := client.maps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: preconditions}); !apierrors.IsConflict(err) {
			t.Errorf("delete with another %s: got %v, want Conflict", name, err)
		}
	}
	if err := client.maps.Delete(ctx, "a",
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			UID:             &created.UID,
			ResourceVersion: &created.ResourceVersion,
		}}); err != nil {
		t.Errorf("delete with the right preconditions: %v", err)
	}
	if err := client.maps.Delete(ctx, "a", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("second delete: got %v, want NotFound", err)
	}
	for policy, finalizer := range map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationOrphan:     metav1.FinalizerOrphanDependents,
		metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents,
	} {
		name := string(policy[0]|0x20) + "-policy"
		client.create(t, configMap(name, "1"))
		if err := client.maps.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
		// A garbage collector would remove the finalizer; none runs here.
		created, err := client.maps.Get(ctx, name, metav1.GetOptions{})
		if err != nil || created.DeletionTimestamp == nil || len(created.Finalizers) != 1 || created.Finalizers[0] != finalizer {
			t.Errorf("%s: got %v, %v, want a deletionTimestamp and only the finalizer %s", policy, created, err, finalizer)
		}
	}
	nonsense := metav1.DeletionPropagation("Sideways")
	if err := client.maps.Delete(ctx, "a",
		metav1.DeleteOptions{PropagationPolicy: &nonsense}); !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		t.Errorf("unknown policy: got %v, want Invalid or BadRequest", err)
	}
}

// checkFinalizerSemantics checks that a deleted object exists until its last finalizer is removed.
func checkFinalizerSemantics(t *testing.T, client subject) {
	ctx := t.Context()
	held := configMap("held", "1")
	held.Finalizers = []string{"e2e.example.org/a", "e2e.example.org/b"}
	client.create(t, held)
	if err := client.maps.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	current, err := client.maps.Get(ctx, "held", metav1.GetOptions{})
	if err != nil || current.DeletionTimestamp == nil {
		t.Fatalf("held: %v, %v, want a deletionTimestamp", current, err)
	}
	first := current.DeletionTimestamp.DeepCopy()
	if err := client.maps.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete during deletion: got error %v, want none", err)
	}
	current.Finalizers = append(current.Finalizers, "e2e.example.org/late")
	if _, err := client.maps.Update(ctx, current, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("finalizer added during deletion: got %v, want Invalid", err)
	}
	current.Finalizers = current.Finalizers[1:2]
	current, err = client.maps.Update(ctx, current, metav1.UpdateOptions{})
	if err != nil || !current.DeletionTimestamp.Equal(first) {
		t.Fatalf("after one finalizer was removed: got %v, %v", current, err)
	}
	current.Finalizers = nil
	if _, err := client.maps.Update(ctx, current, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.maps.Get(ctx, "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the last finalizer: got %v, want NotFound", err)
	}
}

// checkDeleteCollection checks that only selected objects are deleted.
func checkDeleteCollection(t *testing.T, client subject) {
	ctx := t.Context()
	for i := range 10 {
		c := configMap(fmt.Sprintf("c-%d", i), "1")
		c.Labels = map[string]string{"odd": strconv.FormatBool(i%2 == 1)}
		client.create(t, c)
	}
	if err := client.maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "odd=true"}); err != nil {
		t.Fatal(err)
	}
	list, err := client.maps.List(ctx, metav1.ListOptions{LabelSelector: "odd"})
	if err != nil || len(list.Items) != 5 {
		t.Errorf("got %d, %v, want 5 left", len(list.Items), err)
	}
	for _, c := range list.Items {
		if c.Labels["odd"] != "false" {
			t.Errorf("%s exists, want it deleted", c.Name)
		}
	}
}

// checkDryRunSemantics checks that dry runs return results and change nothing.
func checkDryRunSemantics(t *testing.T, client subject) {
	ctx, all := t.Context(), []string{metav1.DryRunAll}
	result, err := client.maps.Create(ctx, configMap("a", "1"), metav1.CreateOptions{DryRun: all})
	if err != nil || result.UID == "" || result.ResourceVersion != "" {
		t.Errorf("create: got %v, %v, want a UID and no resourceVersion", result, err)
	}
	if _, err := client.maps.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get after a dry-run create: got %v, want NotFound", err)
	}
	real := client.create(t, configMap("a", "1"))
	result, err = client.maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"value":"2"}}`), metav1.PatchOptions{DryRun: all})
	if err != nil || result.Data["value"] != "2" {
		t.Errorf("dry-run patch: got %v, %v, want value 2", result, err)
	}
	if err := client.maps.Delete(ctx, "a", metav1.DeleteOptions{DryRun: all}); err != nil {
		t.Errorf("delete: %v", err)
	}
	result, err = client.maps.Get(ctx, "a", metav1.GetOptions{})
	if err != nil || !equality.Semantic.DeepEqual(result, real) {
		t.Errorf("after dry runs: got %v, %v, want %v", result, err, real)
	}
	if _, err := client.maps.Create(ctx, configMap("a", "1"), metav1.CreateOptions{DryRun: all}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("dry-run create of an existing object: got %v, want AlreadyExists", err)
	}
}

// checkGenerateName checks that generated names have a random suffix and are unique.
func checkGenerateName(t *testing.T, client subject) {
	seen := map[string]bool{}
	for range 20 {
		c := client.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}})
		if len(c.Name) != len("made-")+5 || seen[c.Name] {
			t.Errorf("got name %q, want a new one with prefix \"made-\" and 5 more characters", c.Name)
		}
		seen[c.Name] = true
	}
}

// checkPages reads a list in chunks while objects change. All chunks have one version.
func checkPages(t *testing.T, client subject) {
	const objects = 53
	ctx, want := t.Context(), map[string]string{}
	for i := range objects {
		c := client.create(t, configMap(fmt.Sprintf("p-%03d", i), "1"))
		want[c.Name] = c.ResourceVersion
	}
	got, version, page := map[string]string{}, "", 0
	listPager := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list, err := client.maps.List(ctx, o)
		if err != nil {
			return nil, err
		}
		if version == "" {
			version = list.ResourceVersion
		}
		if list.ResourceVersion != version || len(list.Items) > 10 {
			t.Errorf("page of %d items has version %s, want %s", len(list.Items), list.ResourceVersion, version)
		}
		if left := list.RemainingItemCount; list.Continue != "" && (left == nil ||
			*left+int64(len(list.Items)+len(got)) != objects) {
			t.Errorf("got %v remaining items after %d", left, len(list.Items)+len(got))
		}
		for _, c := range list.Items {
			got[c.Name] = c.ResourceVersion
		}
		// Changes from now on must not appear in this list.
		page++
		if err := client.maps.Delete(ctx, fmt.Sprintf("p-%03d", objects-page), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		_, err = client.maps.Create(ctx, configMap(fmt.Sprintf("q-%03d", page), "1"), metav1.CreateOptions{})
		return list, err
	})
	listPager.PageSize, listPager.PageBufferSize = 10, 0
	if err := listPager.EachListItem(ctx, metav1.ListOptions{}, func(runtime.Object) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := sameVersions(want, got); err != nil {
		t.Error(err)
	}
	if _, err := client.maps.List(ctx, metav1.ListOptions{Continue: "nonsense"}); !apierrors.IsBadRequest(err) {
		t.Errorf("invalid continue token: got %v, want BadRequest", err)
	}
}

// checkSelectors checks label and field selectors.
func checkSelectors(t *testing.T, client subject) {
	ctx := t.Context()
	for i, labels := range []map[string]string{{"a": "1", "b": "x"}, {"a": "2", "b": "x"}, {"a": "1"}, nil} {
		c := configMap(fmt.Sprintf("s-%d", i), "1")
		c.Labels = labels
		client.create(t, c)
	}
	for _, test := range []struct {
		labels, fields string
		want           int
	}{
		{labels: "", want: 4},
		{labels: "a=1", want: 2},
		{labels: "a!=1", want: 2},
		{labels: "a in (1,2)", want: 3},
		{labels: "a notin (1)", want: 2},
		{labels: "b", want: 2},
		{labels: "!b", want: 2},
		{labels: "a=1,b=x", want: 1},
		{labels: "", fields: "metadata.name=s-1", want: 1},
		{labels: "", fields: "metadata.name!=s-1", want: 3},
		{labels: "a=1", fields: "metadata.name=s-1", want: 0},
		{labels: "", fields: "metadata.namespace=other", want: 0},
	} {
		list, err := client.maps.List(ctx, metav1.ListOptions{LabelSelector: test.labels, FieldSelector: test.fields})
		if err != nil || len(list.Items) != test.want {
			t.Errorf("%q %q: got %d, %v, want %d", test.labels, test.fields, len(list.Items), err, test.want)
		}
	}
	if _, err := client.maps.List(ctx, metav1.ListOptions{FieldSelector: "data.value=1"}); !apierrors.IsBadRequest(err) {
		t.Errorf("unsupported field selector: got %v, want BadRequest", err)
	}
}

// checkListVersions checks lists of the most recent state, of any state, of a state not older than
// a version, and of exactly a version.
func checkListVersions(t *testing.T, client subject) {
	ctx, firstMap := t.Context(), client.create(t, configMap("a", "1"))
	before, err := client.maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	count := len(before.Items)
	client.create(t, configMap("b", "1"))
	for _, test := range []struct {
		name    string
		options metav1.ListOptions
		want    int
	}{
		{name: "most recent", options: metav1.ListOptions{}, want: count + 1},
		{name: "any", options: metav1.ListOptions{ResourceVersion: "0"}, want: -1},
		{name: "not older",
			options: metav1.ListOptions{
				ResourceVersion:      firstMap.ResourceVersion,
				ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			},
			want: -1},
		{name: "exact",
			options: metav1.ListOptions{
				ResourceVersion:      before.ResourceVersion,
				ResourceVersionMatch: metav1.ResourceVersionMatchExact,
			},
			want: count},
	} {
		list, err := client.maps.List(ctx, test.options)
		if err != nil || test.want >= 0 && len(list.Items) != test.want || test.want < 0 && len(list.Items) < count-1 {
			t.Errorf("%s: got %d, %v, want %d", test.name, len(list.Items), err, test.want)
		}
		if test.options.ResourceVersionMatch == metav1.ResourceVersionMatchExact && list.ResourceVersion != before.ResourceVersion {
			t.Errorf("exact: got version %s, want %s", list.ResourceVersion, before.ResourceVersion)
		}
	}
	if _, err := client.maps.List(ctx,
		metav1.ListOptions{ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsInvalid(err) {
		t.Errorf("resourceVersionMatch without a version: got %v, want Invalid", err)
	}
}

// checkMetadataOnly checks the metadata client.
func checkMetadataOnly(t *testing.T, mapClient subject) {
	ctx := t.Context()
	created := configMap("a", "a long value")
	created.Labels = map[string]string{"k": "v"}
	created = mapClient.create(t, created)
	client, err := metadata.NewForConfig(mapClient.config)
	if err != nil {
		t.Fatal(err)
	}
	maps := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(mapClient.namespace)
	got, err := maps.Get(ctx, "a", metav1.GetOptions{})
	if err != nil || !equality.Semantic.DeepEqual(got.ObjectMeta, created.ObjectMeta) {
		t.Errorf("got %v, %v, want %v", got, err, created.ObjectMeta)
	}
	list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "k=v"})
	if err != nil || len(list.Items) != 1 || list.Items[0].UID != created.UID {
		t.Errorf("list: got %v, %v, want one object with UID %s", list, err, created.UID)
	}
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := mapClient.maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e := nextEvent(t, w)
	if m, ok := e.Object.(*metav1.PartialObjectMetadata); !ok || e.Type != watch.Deleted || m.UID != created.UID {
		t.Errorf("watch: got %v, want %s of the metadata of UID %s", e, watch.Deleted, created.UID)
	}
}
