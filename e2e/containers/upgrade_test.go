package containers

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// fromEnv names the commit at which an upgrade starts.
const fromEnv = "BINNACLE_CONTAINERS_FROM"

// TestUpgradeAndRollback replaces older images by current ones and back, one container at a time,
// under load. The older services come from an older commit. If the repository has none, the same
// programs run under another tag, which the log says.
func TestUpgradeAndRollback(t *testing.T) {
	needForm(t, long)
	needDocker(t)
	needImages(t)
	former := tag() + "-former"
	from := os.Getenv(fromEnv)
	if from == "" {
		from = "HEAD~20"
	}
	if dir, commit := harness.Checkout(t, from); dir != "" {
		t.Logf("from commit %s", commit)
		if err := makeImages(former, dir); err != nil {
			t.Fatal(err)
		}
	} else {
		t.Log("the repository has no older commit: using the same programs under another tag")
		for _, s := range services() {
			mustDocker(t, "image", "tag", imageOf(s), imagesPrefix+"/"+s+":"+former)
		}
	}
	c := startAt(t, "upgrade", former)
	l := c.startLoad(t, seed(t))
	for _, to := range []string{tag(), former} {
		started := time.Now()
		c.roll(to)
		l.awaitRecovery("recovery with " + to)
		t.Logf("all containers run %s after %s", to, time.Since(started).Round(time.Second))
	}
	l.finish()
}

// roll replaces the containers by those of other images, each after the previous one is ready.
func (c *composition) roll(tag string) {
	c.t.Helper()
	client := c.etcd()
	for _, s := range instances() {
		c.compose("up", "--tag="+tag, "--only="+s)
		if !strings.HasPrefix(s, "etcd") {
			continue
		}
		harness.Eventually(c.t, waitTimeout, s+" to be a member again", func() error {
			ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
			defer cancel()
			_, err := client.Status(ctx, "https://"+s+":2379")
			return err
		})
	}
}
