package scenarios

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// nextEvent returns the next event that is not a bookmark.
func nextEvent(t *testing.T, client watch.Interface) watch.Event {
	t.Helper()
	limit := time.After(watchLimit)
	for {
		select {
		case event, ok := <-client.ResultChan():
			if !ok {
				t.Fatal("the watch ended, want an event")
			}
			if event.Type != watch.Bookmark {
				return event
			}
		case <-limit:
			t.Fatal("got no event in time, want one")
		}
	}
}

// checkWatchChanges follows an object into and out of a selection, and resumes the watch.
func checkWatchChanges(t *testing.T, server subject) {
	ctx := t.Context()
	list, err := server.maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := server.maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "on=yes"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Stop()
	var versions []string
	expect := func(typ watch.EventType, c *corev1.ConfigMap) {
		t.Helper()
		event := nextEvent(t, client)
		got, ok := event.Object.(*corev1.ConfigMap)
		if !ok || event.Type != typ || got.Name != c.Name || got.ResourceVersion != c.ResourceVersion {
			t.Errorf("got %s %v, want %s %s %s", event.Type, event.Object, typ, c.Name, c.ResourceVersion)
		}
		versions = append(versions, c.ResourceVersion)
	}
	set := func(label string) *corev1.ConfigMap {
		t.Helper()
		c, err := server.maps.Patch(ctx, "a", types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{"on":%q}}}`, label), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	server.create(t, configMap("a", "1"))
	expect(watch.Added, set("yes"))
	c, err := server.maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"value":"2"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect(watch.Modified, c)
	expect(watch.Deleted, set("no"))
	expect(watch.Added, set("yes"))
	if err := server.maps.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	event := nextEvent(t, client)
	if c, ok := event.Object.(*corev1.ConfigMap); !ok || event.Type != watch.Deleted ||
		parseRevision(t, c.ResourceVersion) <= parseRevision(t, versions[3]) {
		t.Errorf("got %v, want a deletion newer than %s", event, versions[3])
	}
	// A second watch resumes after the second event.
	again, err := server.maps.Watch(ctx, metav1.ListOptions{ResourceVersion: versions[1], LabelSelector: "on=yes"})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	for _, want := range []watch.EventType{watch.Deleted, watch.Added, watch.Deleted} {
		if event := nextEvent(t, again); event.Type != want {
			t.Errorf("resumed: got %v, want %s", event, want)
		}
	}
}

// checkBookmarks checks that a bookmark with a version to resume at arrives before a watch ends.
func checkBookmarks(t *testing.T, server subject) {
	ctx, limit := t.Context(), int64(4)
	client, err := server.maps.Watch(ctx, metav1.ListOptions{AllowWatchBookmarks: true, TimeoutSeconds: &limit, ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Stop()
	c := server.create(t, configMap("a", "1"))
	var last *corev1.ConfigMap
	seen := false
	for event := range client.ResultChan() {
		o, ok := event.Object.(*corev1.ConfigMap)
		if !ok {
			t.Fatalf("got event %v, want one of a ConfigMap", event)
		}
		switch {
		case event.Type == watch.Bookmark:
			last = o
		case o.Name == c.Name:
			seen = true
		}
	}
	if !seen || last == nil || last.ResourceVersion == "" || last.Name != "" || last.Data != nil {
		t.Fatalf("got event: %t, last bookmark %v, want the event and a bookmark with only a version", seen, last)
	}
	again, err := server.maps.Watch(ctx, metav1.ListOptions{ResourceVersion: last.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	newer := server.create(t, configMap("b", "1"))
	event := nextEvent(t, again)
	if o, ok := event.Object.(*corev1.ConfigMap); !ok || event.Type != watch.Added || o.ResourceVersion != newer.ResourceVersion {
		t.Errorf("after the bookmark: got %v, want only the creation of b", event)
	}
}
