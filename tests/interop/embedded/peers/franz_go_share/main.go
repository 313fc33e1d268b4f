// A worker on franz-go's share consumer. It says "took PARTITION OFFSET COUNT ..." for the records of a poll, and "done
// PARTITION OFFSET ..." once they are accepted; it ends when standard input does.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	say := func(fact string, words []string) {
		fmt.Fprintln(out, fact, strings.Join(words, " "))
		out.Flush()
	}
	refused := make(chan error, 1000)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ShareGroup(os.Args[2]),
		kgo.ConsumeTopics(os.Args[3]),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if err := results.Error(); err != nil {
				refused <- err
			}
		}),
	)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for ctx.Err() == nil {
		var took, done []string
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			took = append(took, fmt.Sprintf("%d %d %d", record.Partition, record.Offset, record.DeliveryCount()))
			done = append(done, fmt.Sprintf("%d %d", record.Partition, record.Offset))
			client.MarkAcks(kgo.AckAccept, record)
		})
		if len(took) == 0 {
			continue
		}
		say("took", took)
		if err := client.FlushAcks(context.Background()); err != nil {
			panic(err)
		}
		select {
		case err := <-refused:
			say("refused", []string{err.Error()})
		default:
			say("done", done)
		}
	}
	client.Close()
}
