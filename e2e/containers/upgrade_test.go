package containers

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"binnacle/e2e/harness"
)

// agoEnv names the commit that an upgrade begins at.
const agoEnv = "BINNACLE_CONTAINERS_FROM"

// TestUpgrade goes from older images to those of today and back, one container at a
// time, under load. The services of the older ones are those of an older commit, as
// far as the checkout has one; else the same programs under another tag, which the
// log says.
func TestUpgrade(t *testing.T) {
	needForm(t, long)
	needDocker(t)
	needImages(t)
	former := tag() + "-former"
	from := os.Getenv(agoEnv)
	if from == "" {
		from = "HEAD~20"
	}
	if dir, commit := harness.Checkout(t, from); dir != "" {
		t.Logf("from commit %s", commit)
		if err := makeImages(former, dir); err != nil {
			t.Fatal(err)
		}
	} else {
		t.Log("the checkout has no older commit: the same programs, under another tag")
		for _, s := range services() {
			mustDocker(t, "image", "tag", imageOf(s), imagesPrefix+"/"+s+":"+former)
		}
	}
	c := startAt(t, "upgrade", former)
	l := c.startLoad(t, seed(t))
	for _, to := range []string{tag(), former} {
		begun := time.Now()
		c.roll(to)
		l.recovered("everything runs " + to)
		t.Logf("everything runs %s after %s", to, time.Since(begun).Round(time.Second))
	}
	l.finish()
}

// roll replaces the containers by those of other images, each when the one before
// is ready.
func (c *composition) roll(tag string) {
	c.t.Helper()
	client := c.etcd()
	for _, s := range instances() {
		c.compose("up", "--tag="+tag, "--only="+s)
		if !strings.HasPrefix(s, "etcd") {
			continue
		}
		harness.Eventually(c.t, patience, s+" is a member again", func() error {
			ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
			defer cancel()
			_, err := client.Status(ctx, "https://"+s+":2379")
			return err
		})
	}
}
