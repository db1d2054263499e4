// A process that acquires a Lease with client-go's own leader election, by command.
//
// Arguments: URL of the API server, file with its CA certificate, file with a token, name of the
// Lease. Each line of standard input is a command; each answer is one line of JSON.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

type peer struct {
	client *kubernetes.Clientset
	name   string
	turns  int
	cancel context.CancelFunc
	ended  chan struct{}
}

func main() {
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            os.Args[1],
		TLSClientConfig: rest.TLSClientConfig{CAFile: os.Args[2]},
		BearerTokenFile: os.Args[3],
		QPS:             1000,
		Burst:           1000,
	})
	if err != nil {
		panic(err)
	}
	held := &peer{client: client, name: os.Args[4]}
	fmt.Println(`{"value": "ready"}`)
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		value, err := held.perform(strings.Split(commands.Text(), "\t"))
		if err != nil {
			fmt.Printf("{\"error\": %q}\n", err.Error())
		} else {
			fmt.Printf("{\"value\": %s}\n", value)
		}
	}
}

func (p *peer) perform(command []string) (string, error) {
	switch command[0] {
	case "lock":
		wait, err := strconv.Atoi(command[1])
		if err != nil {
			return "", err
		}
		return strconv.FormatBool(p.lock(time.Duration(wait) * time.Millisecond)), nil
	case "unlock":
		p.unlock()
		return "true", nil
	case "sections":
		count, err := strconv.Atoi(command[1])
		if err != nil {
			return "", err
		}
		return strconv.Itoa(p.sections(count, command[2])), nil
	}
	return "", errors.New("unknown command " + command[0])
}

// lock runs an election until it is won or the wait has timed out.
func (p *peer) lock(wait time.Duration) bool {
	p.turns++
	leading := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: p.name, Namespace: "default"},
			Client:     p.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("client-go-%d-%d", os.Getpid(), p.turns)},
		},
		LeaseDuration:   2 * time.Second,
		RenewDeadline:   1500 * time.Millisecond,
		RetryPeriod:     50 * time.Millisecond,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leading) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.ended = cancel, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		elector.Run(ctx)
	}(p.ended)
	select {
	case <-leading:
		return true
	case <-time.After(wait):
		p.unlock()
		return false
	}
}

func (p *peer) unlock() {
	p.cancel()
	<-p.ended
}

// sections runs critical sections and returns how many of them overlapped with another process.
func (p *peer) sections(count int, marker string) int {
	overlaps := 0
	for done := 0; done < count; {
		if !p.lock(20 * time.Second) {
			continue
		}
		done++
		file, err := os.OpenFile(marker, os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			overlaps++
		} else {
			file.Close()
		}
		time.Sleep(time.Duration(1+rand.Intn(5)) * time.Millisecond)
		os.Remove(marker)
		p.unlock()
		time.Sleep(time.Duration(rand.Intn(20)) * time.Millisecond)
	}
	return overlaps
}
