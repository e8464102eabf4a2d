package embedded

import (
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// What is read of the database is told as resident: no less, and nothing else.
func TestResident(t *testing.T) {
	if _, err := os.Stat("/proc/self/smaps"); err != nil {
		t.Skip("the system does not tell what is resident")
	}
	dir := t.TempDir()
	s, _, _ := small(t, dir, 64<<20)
	defer s.Stop()
	const objects, each = 40, 50 << 10
	for i := range objects {
		if _, err := s.client.Put(t.Context(), object(i), noise(each)); err != nil {
			t.Fatal(err)
		}
	}
	s.etcd.Server.KV().Commit()
	if resp, err := s.client.Get(t.Context(), "/registry/", clientv3.WithPrefix()); err != nil || len(resp.Kvs) != objects {
		t.Fatalf("%v, %v", resp, err)
	}
	if got, size := residentFile(dir), s.etcd.Server.Backend().Size(); got < objects*each || got > size {
		t.Errorf("%d bytes are resident of a file of %d, %d of which were read", got, size, objects*each)
	}
	if got := residentFile(t.TempDir()); got != 0 {
		t.Errorf("%d bytes are resident of a file that is not there", got)
	}
}
