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
	requireForm(t, long)
	requireDocker(t)
	requireImages(t)
	former := imageTag() + "-former"
	from := os.Getenv(fromEnv)
	if from == "" {
		from = "HEAD~20"
	}
	if dir, commit := harness.Checkout(t, from); dir != "" {
		t.Logf("from commit %s", commit)
		if err := buildImages(former, dir); err != nil {
			t.Fatal(err)
		}
	} else {
		t.Log("the repository has no older commit: using the same programs under another tag")
		for _, s := range imageNames() {
			mustDocker(t, "image", "tag", imageOf(s), imagesPrefix+"/"+s+":"+former)
		}
	}
	c := startCompositionWithTag(t, "upgrade", former)
	load := c.startLoad(t, randomSeed(t))
	for _, to := range []string{imageTag(), former} {
		started := time.Now()
		c.replaceContainers(to)
		load.awaitRecovery("recovery with " + to)
		t.Logf("all containers run %s after %s", to, time.Since(started).Round(time.Second))
	}
	load.stopAndCheck()
}

// replaceContainers replaces the containers by containers of images with a tag, each after the
// previous one is ready.
func (c *composition) replaceContainers(tag string) {
	c.t.Helper()
	client := c.etcdClient()
	for _, s := range instances() {
		c.mustCompose("up", "--tag="+tag, "--only="+s)
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
