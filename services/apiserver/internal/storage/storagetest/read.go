package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"binnacle/services/apiserver/internal/storage"
)

var readTests = []test{
	{"GetReturnsNewestValue", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		kv, at, err := s.store.Get(s.ctx, "/registry/pods/a", 0)
		if err != nil {
			s.Fatal(err)
		}
		if kv.Key != "/registry/pods/a" || string(kv.Value) != "v1" || kv.ModRevision != rev || kv.CreateRevision != rev || at != rev {
			s.Fatalf("got %+v read at %d, want revision %d throughout", kv, at, rev)
		}
		next := s.update("/registry/pods/a", "v2", rev)
		kv, at, err = s.store.Get(s.ctx, "/registry/pods/a", 0)
		if err != nil {
			s.Fatal(err)
		}
		if string(kv.Value) != "v2" || kv.ModRevision != next || kv.CreateRevision != rev || at != next {
			s.Fatalf("got %+v read at %d, want v2 at %d, created at %d", kv, at, next, rev)
		}
	}},
	{"GetOfMissingKeyReturnsRevision", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		_, at, err := s.store.Get(s.ctx, "/registry/pods/b", 0)
		s.wantNotFound(err)
		if at != rev {
			s.Fatalf("read at %d, want %d", at, rev)
		}
	}},
	{"GetReturnsValueAtRevision", func(s *suite) {
		before := s.create("/registry/pods/other", "x")
		first := s.create("/registry/pods/a", "v1")
		second := s.update("/registry/pods/a", "v2", first)
		deleted := s.delete("/registry/pods/a", second)
		for _, c := range []struct {
			at    int64
			value string
			mod   int64
		}{{before, "", 0}, {first, "v1", first}, {second, "v2", second}, {deleted, "", 0}} {
			kv, at, err := s.store.Get(s.ctx, "/registry/pods/a", c.at)
			if at != c.at {
				s.Fatalf("read at %d, want %d", at, c.at)
			}
			if c.mod == 0 {
				s.wantNotFound(err)
				continue
			}
			if err != nil || string(kv.Value) != c.value || kv.ModRevision != c.mod || kv.CreateRevision != first {
				s.Fatalf("at %d: got %+v, %v", c.at, kv, err)
			}
		}
	}},
	{"GetAtFutureRevisionFails", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		_, _, err := s.store.Get(s.ctx, "/registry/pods/a", rev+10)
		s.wantFuture(err, rev)
	}},
	{"StoresEmptyValue", func(s *suite) {
		rev := s.create("/registry/pods/a", "")
		s.wantNewest("/registry/pods/a", "", rev)
	}},
	{"StoresAnyBytes", func(s *suite) {
		value := make([]byte, 256)
		for i := range value {
			value[i] = byte(i)
		}
		rev := s.create("/registry/pods/ä b", string(value))
		s.wantNewest("/registry/pods/ä b", string(value), rev)
	}},
	{"RevisionFollowsWrites", func(s *suite) {
		rev := s.create("/registry/pods/a", "v1")
		if got := s.revision(); got != rev {
			s.Fatalf("got revision %d after a write at %d", got, rev)
		}
		rev = s.delete("/registry/pods/a", rev)
		if got := s.revision(); got != rev {
			s.Fatalf("got revision %d after a deletion at %d", got, rev)
		}
	}},
	{"ReadsSeeAcknowledgedWrites", readsSeeWrites},
	{"EndedContextFailsOperations", func(s *suite) {
		s.create("/registry/pods/a", "v1")
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		if _, _, err := s.store.Get(ctx, "/registry/pods/a", 0); !errors.Is(err, context.Canceled) {
			s.Errorf("get: got %v, want context.Canceled", err)
		}
		if _, err := s.store.List(ctx, "/registry/pods/", storage.ListOptions{}); !errors.Is(err, context.Canceled) {
			s.Errorf("list: got %v, want context.Canceled", err)
		}
		if _, err := s.store.Watch(ctx, "/registry/pods/", 0); !errors.Is(err, context.Canceled) {
			s.Errorf("watch: got %v, want context.Canceled", err)
		}
	}},
}

// readsSeeWrites checks that every kind of read that starts after an acknowledged write sees it.
func readsSeeWrites(s *suite) {
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 25 {
				key := fmt.Sprintf("/registry/pods/g%d/p%d", worker, i)
				rev, err := s.store.Create(s.ctx, key, []byte("x"), storage.WriteOptions{})
				if err != nil {
					s.Errorf("create: %v", err)
					return
				}
				if at, err := s.store.Revision(s.ctx); err != nil || at < rev {
					s.Errorf("revision %d, %v after a write at %d", at, err, rev)
				}
				if kv, _, err := s.store.Get(s.ctx, key, 0); err != nil || kv.ModRevision != rev {
					s.Errorf("got revision %d, %v after a write at %d", kv.ModRevision, err, rev)
				}
				if res, err := s.store.List(s.ctx, key, storage.ListOptions{}); err != nil || res.Revision < rev || len(res.Items) == 0 {
					s.Errorf("list at %d of %d items, %v after a write at %d", res.Revision, len(res.Items), err, rev)
				}
			}
		})
	}
	wg.Wait()
}

var listTests = []test{
	{"ReturnsValuesInKeyOrder", func(s *suite) {
		b := s.create("/registry/pods/b", "vb")
		a := s.create("/registry/pods/a", "va")
		a2 := s.update("/registry/pods/a", "va2", a)
		s.create("/registry/pods/c", "vc")
		s.delete("/registry/pods/c", a2+1)
		res := s.list("/registry/pods/", storage.ListOptions{})
		s.wantKeys(res, "/registry/pods/a", "/registry/pods/b")
		first, second := res.Items[0], res.Items[1]
		if string(first.Value) != "va2" || first.ModRevision != a2 || first.CreateRevision != a {
			s.Fatalf("first item: got %+v, want va2 at %d, created at %d", first, a2, a)
		}
		if string(second.Value) != "vb" || second.ModRevision != b || second.CreateRevision != b {
			s.Fatalf("second item: got %+v, want vb at %d", second, b)
		}
		if res.Revision != s.revision() || res.Count != 2 || res.HasMore {
			s.Fatalf("got revision %d, count %d, more %v, want %d, 2, false", res.Revision, res.Count, res.HasMore, s.revision())
		}
	}},
	{"EmptyPrefix", func(s *suite) {
		rev := s.create("/registry/pods/a", "v")
		res := s.list("/registry/services/", storage.ListOptions{})
		s.wantKeys(res)
		if res.Revision != rev || res.Count != 0 || res.HasMore {
			s.Fatalf("got %+v, want revision %d and nothing else", res, rev)
		}
	}},
	{"PrefixBoundaries", func(s *suite) {
		for _, k := range []string{
			"/registry/pod", "/registry/pods", "/registry/pods/", "/registry/pods/a", "/registry/pods/\xff",
			"/registry/pods0", "/registry/podtemplates/a", "/registry/pods.x/a", "/other",
		} {
			s.create(k, "v")
		}
		s.wantKeys(s.list("/registry/pods/", storage.ListOptions{}), "/registry/pods/", "/registry/pods/a", "/registry/pods/\xff")
		s.wantKeys(s.list("/registry/podt", storage.ListOptions{}), "/registry/podtemplates/a")
		if n := len(s.list("/registry/", storage.ListOptions{}).Items); n != 8 {
			s.Fatalf("%d keys below the root, want 8", n)
		}
		if n := len(s.list("", storage.ListOptions{}).Items); n != 9 {
			s.Fatalf("%d keys in all, want 9", n)
		}
	}},
	{"PagesHaveOneRevision", listPages},
	{"LimitIsExact", func(s *suite) {
		for i := range 3 {
			s.create(podKey(i), "v")
		}
		for limit, more := range map[int64]bool{1: true, 2: true, 3: false, 4: false} {
			res := s.list("/registry/pods/", storage.ListOptions{Limit: limit})
			if int64(len(res.Items)) != min(limit, 3) || res.HasMore != more || res.Count != 3 {
				s.Fatalf("limit %d: %d items, more %v, count %d", limit, len(res.Items), res.HasMore, res.Count)
			}
		}
	}},
	{"StartsAtKey", func(s *suite) {
		for i := range 4 {
			s.create(podKey(i), "v")
		}
		res := s.list("/registry/pods/", storage.ListOptions{StartKey: podKey(2)})
		s.wantKeys(res, podKey(2), podKey(3))
		if res.Count != 2 {
			s.Fatalf("count %d, want 2, the keys from the first one on", res.Count)
		}
		s.wantKeys(s.list("/registry/pods/", storage.ListOptions{StartKey: podKey(2) + "\x00"}), podKey(3))
		s.wantKeys(s.list("/registry/pods/", storage.ListOptions{StartKey: "/registry/a", Limit: 1}), podKey(0))
		s.wantKeys(s.list("/registry/pods/", storage.ListOptions{StartKey: "/registry/z"}))
	}},
	{"ReturnsStateAtRevision", func(s *suite) {
		a := s.create("/registry/pods/a", "v1")
		b := s.create("/registry/pods/b", "v1")
		a2 := s.update("/registry/pods/a", "v2", a)
		last := s.delete("/registry/pods/b", b)
		for _, c := range []struct {
			at   int64
			keys []string
			a    int64
		}{
			{a, []string{"/registry/pods/a"}, a},
			{b, []string{"/registry/pods/a", "/registry/pods/b"}, a},
			{a2, []string{"/registry/pods/a", "/registry/pods/b"}, a2},
			{last, []string{"/registry/pods/a"}, a2},
		} {
			res := s.list("/registry/pods/", storage.ListOptions{Revision: c.at})
			s.wantKeys(res, c.keys...)
			if res.Revision != c.at || res.Items[0].ModRevision != c.a {
				s.Fatalf("at %d: revision %d, first item at %d", c.at, res.Revision, res.Items[0].ModRevision)
			}
		}
	}},
	{"FutureRevisionFails", func(s *suite) {
		rev := s.create("/registry/pods/a", "v")
		_, err := s.store.List(s.ctx, "/registry/pods/", storage.ListOptions{Revision: rev + 1})
		s.wantFuture(err, rev)
	}},
	{"LongListHasOneRevision", listOneRevision},
}

// listPages checks that the pages of a list, read as clients do, equal the list, regardless of
// writes in between.
func listPages(s *suite) {
	var expected []string
	for i := range 10 {
		s.create(podKey(i), "v")
		expected = append(expected, podKey(i))
	}
	var collected storage.ListResult
	opts := storage.ListOptions{Limit: 3}
	for page := 0; ; page++ {
		res := s.list("/registry/pods/", opts)
		if left := int64(10 - 3*page); res.Count != left {
			s.Fatalf("page %d: count %d, want %d", page, res.Count, left)
		}
		collected.Items = append(collected.Items, res.Items...)
		s.create(fmt.Sprintf("/registry/pods/ns/p%06d-later", page), "v")
		if !res.HasMore {
			break
		}
		opts.Revision = res.Revision
		opts.StartKey = res.Items[len(res.Items)-1].Key + "\x00"
	}
	s.wantKeys(collected, expected...)
}

// listOneRevision checks that a list that is too long for one request to the store still shows one
// revision, while a writer moves a key through it.
func listOneRevision(s *suite) {
	const items = 1200
	value := bytes.Repeat([]byte("x"), 100)
	var fill sync.WaitGroup
	for worker := range 8 {
		fill.Go(func() {
			for i := worker; i < items; i += 8 {
				if _, err := s.store.Create(s.ctx, podKey(i), value, storage.WriteOptions{}); err != nil {
					s.Errorf("create: %v", err)
					return
				}
			}
		})
	}
	fill.Wait()

	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		// There is always at most one extra key, each time at another position.
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			key := fmt.Sprintf("%s-mark", podKey((i*397)%items))
			rev, err := s.store.Create(s.ctx, key, value, storage.WriteOptions{})
			if err == nil {
				_, err = s.store.Delete(s.ctx, key, rev)
			}
			if err != nil {
				s.Errorf("writer: %v", err)
				return
			}
		}
	})
	for range 10 {
		res := s.list("/registry/pods/", storage.ListOptions{})
		if n := int64(len(res.Items)); n != res.Count || n < items || n > items+1 {
			s.Errorf("%d items, count %d, want %d or one more", n, res.Count, items)
		}
		again := s.list("/registry/pods/", storage.ListOptions{Revision: res.Revision})
		if len(again.Items) != len(res.Items) {
			s.Errorf("%d items at revision %d, %d before", len(again.Items), res.Revision, len(res.Items))
		}
	}
	close(done)
	writer.Wait()
}
